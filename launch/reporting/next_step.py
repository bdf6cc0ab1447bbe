"""What can be done with the result of a run: told once it has ended well. No Paddle here."""

import shlex
from pathlib import Path

from launch.config.flag_values import Flags, FlagValues
from launch.reporting.records import RUN_SUMMARY, read_summary


def format_duration(seconds: float) -> str:
    """42s, 3m05s, 2h07m or 5d03h."""
    seconds = int(round(seconds))
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d{hour:02d}h"
    if hours:
        return f"{hours}h{minute:02d}m"
    if minutes:
        return f"{minutes}m{second:02d}s"
    return f"{second}s"


def next_step(script: str, flags: Flags, started: float) -> list[str]:
    """How long it took, what came of it, where the model or adapter is and the command that asks it.

    Nothing for a run that trained nothing, or that was stopped before it had a result.

    started: time.time() at the start of the run, which writes its summary last.
    """
    values = FlagValues(script, flags)
    summary = Path(values.output_dir, RUN_SUMMARY)
    if not values.do_train or not summary.exists() or summary.stat().st_mtime < started:
        return []
    output = shlex.quote(values.output_dir)
    if values.lora or values.prefix_tuning:
        kind, asked = "adapter", f"MODEL={shlex.quote(values.model_name_or_path)} ADAPTER={output}"
    else:
        kind, asked = "model", f"MODEL={output}"
    outcome = _outcome(read_summary(values.output_dir))
    return [*outcome, f"The {kind}: {values.output_dir}", f"To ask it, a line each: make predict {asked}"]


def _outcome(summary: dict) -> list[str]:
    """Of a run that has made steps."""
    if not summary.get("last_loss"):
        return []
    losses = f"loss {summary['last_loss']:.4f}, {summary['first_loss']:.4f} at first"
    if summary.get("evaluation"):
        losses += f"; evaluation loss {summary['evaluation']['eval_loss']:.4f}"
    return [f"Done in {format_duration(summary['seconds'])}, {summary['global_step']:,} steps: {losses}"]

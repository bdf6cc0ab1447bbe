"""What can be done with the result of a run: told once it has ended well. No Paddle here."""

import shlex
from pathlib import Path

from launch.models.flag_values import Flags, FlagValues
from launch.reporting.records import RUN_SUMMARY


def next_step(script: str, flags: Flags, started: float) -> list[str]:
    """Where the model or adapter is and the command that asks it; nothing for a run that trained nothing, or that was
    stopped before it had a result.

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
    return [f"The {kind}: {values.output_dir}", f"To ask it, a line each: make predict {asked}"]

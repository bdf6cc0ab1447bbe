"""What a run prints before its first step and after its last one, and its loss curve. No Paddle here.

Before: the layout, the decisions, and what the data and steps amount to. After: what can be done with the result.
"""

import json
import os
import sys
from pathlib import Path

from data_tools.terminal import WIDTH, has_colours, sign
from launch.config.run_config import RunConfig
from launch.config.typed import typed
from launch.reporting.records import RUN_SUMMARY, read_summary, topology

# Set by a recipe for its ranks: the first lines of what its checks have printed, {subject: line}.
SHOWN = "LAUNCH_SHOWN"


def format_duration(seconds: float) -> str:
    """Return a duration such as 42s, 3m05s, 2h07m or 5d03h."""
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


def next_step(run: RunConfig, started: float) -> list[str]:
    """Return the end of a run: its time and result, where model or adapter is, and the command for predictions.

    Return [] for a run that trained nothing, or that was stopped before it had a result.

    Args:
        run: Its configuration.
        started: time.time() at the start of the run, which writes its summary last.
    """
    values = run.flags
    directory = values.output_dir or "."
    summary = Path(directory, RUN_SUMMARY)
    if not values.do_train or not summary.exists() or summary.stat().st_mtime < started:
        return []
    output = typed(directory)
    if values.lora or values.prefix_tuning:
        kind, variables = "adapter", f"MODEL={typed(values.model_name_or_path)} ADAPTER={output}"
    else:
        kind, variables = "model", f"MODEL={output}"
    outcome = _outcome(read_summary(directory))
    return [*outcome, f"The {kind}: {directory}", f"To ask it, a line each: make predict {variables}"]


def _outcome(summary: dict) -> list[str]:
    """Return the result of a run that has made steps."""
    if not summary.get("last_loss"):
        return []
    losses = f"loss {summary['last_loss']:.4f}, {summary['first_loss']:.4f} at first"
    if summary.get("evaluation"):
        losses += f"; evaluation loss {summary['evaluation']['eval_loss']:.4f}"
    return [f"Done in {format_duration(summary['seconds'])}, {summary['global_step']:,} steps: {losses}"]


def announce(lines: list[str], decisions, trainer) -> None:
    """Print the start of a run on rank 0."""
    if trainer.args.process_index != 0:
        return
    lines = [*lines, describe_layout(trainer), *decisions.lines]
    if trainer.args.do_train:
        lines.append(describe_steps(trainer))
        lines.append(trainer.reporter.throughput.note)
    print("\n".join(not_shown(lines)), flush=True)


def first_lines(findings: list) -> str:
    """Return the value of SHOWN: a sample may be longer than the 128 KiB that Linux allows a variable."""
    return json.dumps({finding.subject: finding.found.partition("\n")[0][:1000] for finding in findings})


def not_shown(lines: list[str]) -> list[str]:
    """Return the lines that the checks before the start have not printed.

    A sample, whose lines begin with spaces, is left out with its first line.
    """
    findings = json.loads(os.environ.get(SHOWN, "{}")).items()
    shown = {text for subject, found in findings for text in (found, f"{subject}: {found}")}
    left, repeats = [], False
    for line in lines:
        repeats = line in shown or (repeats and line.startswith("    "))
        if not repeats:
            left.append(line)
    return left


def describe_layout(trainer) -> str:
    """Return the line about the layout."""
    args = trainer.args
    shape = trainer.reporter.throughput.shape
    layout = topology(args)
    sharding = "+".join(option.value for option in args.sharding)
    parts = [
        f"{name} {degree}"
        for name, degree in [
            ("data parallel", layout["data_parallel_degree"]),
            (f"sharding {sharding}", layout["sharding_parallel_degree"]),
            (f"tensor{' and sequence' if args.sequence_parallel else ''} parallel", layout["tensor_parallel_degree"]),
            ("pipeline parallel", layout["pipeline_parallel_degree"]),
        ]
        if degree > 1
    ]
    processes = "1 process" if layout["processes"] == 1 else f"{layout['processes']} processes ({', '.join(parts)})"
    dtype = str(trainer.model.config.dtype)
    return f"model: {trainer.model.config.model_type}, {shape.parameters:,} parameters, {dtype}, {processes}"


def describe_steps(trainer) -> str:
    """Return the samples of a step, steps of an epoch, epochs of the run, and a warning where data repeat unasked."""
    args, stream = trainer.args, trainer.data.stream
    epochs = stream.end / stream.samples
    line = (
        f"steps: {args.max_steps:,} of {trainer.data.step_text(args.global_batch)},"
        f" {stream.samples / args.global_batch * trainer.data.passes:,.1f} steps an epoch, {epochs:.2f} epochs"
    )
    blend = trainer.train_dataset
    if hasattr(blend, "samples_used"):  # the next epoch continues with the rest
        parts = [
            f"{used:,} of {len(corpus):,}" for used, corpus in zip(blend.samples_used, blend.datasets, strict=True)
        ]
        line += f"\nblend: an epoch uses {', '.join(parts)} samples of its corpora"
    if epochs > max(trainer.data.epochs_requested, 1):
        line += f"\nwarning: --max_steps {args.max_steps} reads each sample {epochs:.1f} times"
    return line


HEIGHT = 18  # lines
PLAIN_FRAME = str.maketrans("─│┌┐└┘├┤┬┴┼", "-|+++++++++")


def plot_losses(records: list[dict]) -> None:
    """Draw training and evaluation loss over steps on stdout, in colors where it has them."""
    plot_columns(records, {"loss": "training loss"}, {"eval_loss": "evaluation loss"})


def plot_columns(records: list[dict], lines: dict[str, str], points: dict[str, str]) -> None:
    """Draw columns of records over steps on stdout, {key: name}, as lines and as single points."""
    import plotext  # planning, which imports this file, works without any package installed

    dots = sign("⣿", "", sys.stdout)
    plotext.clear_figure()
    plotext.plot_size(WIDTH, HEIGHT)
    for draw, columns, marker in ((plotext.plot, lines, "braille" if dots else "*"), (plotext.scatter, points, "o")):
        for key, name in columns.items():
            found = [record for record in records if key in record]
            steps = [record["global_step"] for record in found]
            if found:
                draw(steps, [record[key] for record in found], label=name, marker=marker)
    plotext.xlabel("step")
    picture = plotext.build()
    if not has_colours(sys.stdout):
        picture = plotext.uncolorize(picture)
    if not dots:
        picture = picture.translate(PLAIN_FRAME)
    print(picture, flush=True)

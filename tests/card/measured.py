"""Compare the records of a run with its plan: memory of every rank, speed, first loss. No Paddle here."""

import re
from pathlib import Path
from statistics import median

from launch.config.flag_values import Flags, known_flags
from launch.config.layout import Layout
from launch.families.arithmetic import ModelShape
from launch.plan.hardware import Card
from launch.plan.job import Job
from launch.plan.memory_model import plan_memory
from launch.plan.time_plan import plan_time
from launch.reporting.records import read_summary, read_train_log
from launch.watch import Window, parse_window

# Steps that do not count for the measured speed: they choose kernels and allocate memory.
WARM_UP = 3


def run_report(output: Path, script: str, card: Card | None) -> dict:
    """Measured and planned values of a finished run. card: None for a CPU.

    Sizes are bytes of tensors on each rank, as counted by Paddle's allocator.
    """
    summary, log = read_summary(output), read_train_log(output)
    processes = summary["topology"]["processes"]
    flags = flags_of(summary, script)
    job = Job.from_flags(script, flags, processes, card)
    return {
        "command": summary["command"],
        "topology": summary["topology"],
        "steps": summary["global_step"],
        "memory": _memory(job, card, summary["peak_memory_bytes_by_rank"]),
        "speed": _speed(job, card, log),
        "first_loss": first_loss_of(flags, job, log[0]["loss"]),
        "losses": [record["loss"] for record in log if "loss" in record],
    }


def flags_of(summary: dict, script: str) -> Flags:
    """The flags of a run, from the arguments in its summary, without those at their defaults."""
    known, arguments = known_flags(script), arguments_of(summary)
    if "sharding" in arguments:
        arguments["sharding"] = _sharding(arguments)
    return {
        name: [str(value)]
        for name, value in arguments.items()
        if name in known and value not in (None, "", "None", "[]") and str(value) != str(known[name].default)
    }


def _sharding(arguments: dict) -> str:
    """ "stage3 offload" of "[<ShardingOption.FULL_SHARD: 'stage3'>]", as the Trainer's arguments have it."""
    words = re.findall(r"stage[123]", arguments["sharding"])
    return " ".join(words + (["offload"] if words and arguments.get("host_offload") else []))


def arguments_of(summary: dict) -> dict:
    """All arguments of a run by name."""
    return {name: value for group in summary["arguments"].values() for name, value in group.items()}


def stage_of_rank(layout: Layout, rank: int) -> int:
    """The pipeline stage of a rank: upstream's order is data, pipeline, sharding, tensor parallel."""
    inner = layout.sharding_parallel_degree * layout.tensor_parallel_degree
    return rank // inner % layout.pipeline_parallel_degree


def _memory(job: Job, card: Card | None, measured: list[int]) -> list[dict]:
    plan = plan_memory(job, card)
    rows = []
    for rank, size in enumerate(measured):
        peak = max(phase.allocated_bytes for phase in plan.stages[stage_of_rank(job.layout, rank)].phases)
        rows.append({"rank": rank, "planned_bytes": peak, "measured_bytes": size, "error": peak / size - 1})
    return rows


def _speed(job: Job, card: Card | None, log: list[dict]) -> dict:
    steps = [record for record in log if "step_seconds" in record]
    steps = steps[WARM_UP:] or steps
    plan = plan_time(job, card)
    seconds = median(record["step_seconds"] for record in steps)
    return {
        "planned_step_seconds": plan.step_seconds,
        "measured_step_seconds": seconds,
        "error": plan.step_seconds / seconds - 1,
        "planned_parts": plan.parts,
        "planned_tokens_per_second": plan.tokens_per_second,
        "measured_tokens_per_second": median(record["tokens_per_second"] for record in steps),
        "measured_mfu": median(record["mfu"] for record in steps),
        "calibrated": bool(card and card.calibrated),
    }


def first_loss_of(flags: Flags, job: Job, loss: float) -> dict:
    """What random weights give is known of text alone, not of preferences."""
    of_text = not (job.loss_type or job.reward_model)
    random = flags.get("continue_training") == ["False"]
    expected = ModelShape.from_config(job.config).first_loss if random and of_text else None
    window = parse_window((flags.get("loss_first") or ["auto"])[0], expected)
    return {"measured": loss} | _within(window, loss)


def _within(window: Window | None, loss: float) -> dict:
    if window is None:
        return {"window": None, "ok": None}
    return {"window": [window.low, window.high], "reason": window.reason, "ok": window.low <= loss <= window.high}

"""Write down how a run went."""

import time

from launch.checkpoint.ranks import gather
from launch.reporting.records import command_line, git_revision, package_versions, plain, topology, write_summary
from launch.training.checks.planned_memory import PlannedMemory
from launch.training.device import peak_memory_bytes
from launch.training.ranks import barrier, rank
from launch.training.trainer import RunTrainer


def finish(arguments: list, trainer: RunTrainer, evaluation: dict | None, started: float) -> None:
    """Write run_summary.json on rank 0 and wait for it everywhere.

    arguments: the parsed argument objects. started: time.time() at the start of the process.
    """
    peaks = gather(peak_memory_bytes())
    if rank() == 0:
        summary = _summary(arguments, trainer, evaluation, started) | {"peak_memory_bytes_by_rank": peaks}
        write_summary(trainer.args.output_dir, summary)
    barrier()


def _summary(arguments: list, trainer: RunTrainer, evaluation: dict | None, started: float) -> dict:
    """The dictionary of run_summary.json without the ranks' peaks; seconds are wall-clock, the peak memory is rank 0's
    at the last logged step."""
    first, last = trainer.first_record, trainer.last_record
    return {
        "command": command_line(),
        "arguments": {type(one).__name__: plain(vars(one)) for one in arguments},
        "versions": package_versions(),
        "git_revision": git_revision(),
        "topology": topology(trainer.args),
        "parameters": trainer.throughput.shape.parameters,
        "global_step": trainer.state.global_step,
        "consumed_tokens": last.get("consumed_tokens", 0),
        "first_loss": first.get("loss"),
        "last_loss": last.get("loss"),
        "evaluation": evaluation,
        "peak_memory_bytes": last.get("peak_memory_bytes"),
        "first_step_memory": _first_step_memory(trainer),
        "seconds": time.time() - started,
    }


def _first_step_memory(trainer: RunTrainer) -> dict | None:
    """What was planned and what was taken (launch/training/checks/planned_memory.py)."""
    planned = [one for one in trainer.callback_handler.callbacks if isinstance(one, PlannedMemory)]
    return planned[0].facts if planned else None

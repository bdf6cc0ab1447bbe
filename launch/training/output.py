"""The output directory: held by one run at a time, nothing of an earlier run is lost."""

import json
import os
from pathlib import Path

from data_tools.formats.atomic import written_aside
from launch.checkpoint.state.lock import LOCK, lock_output
from launch.checkpoint.state.manifest import checkpoint_step, checkpoints, read_manifest
from launch.checkpoint.state.verify import remove_partial
from launch.errors import UserError
from launch.reporting.records import TRAIN_LOG
from launch.training.ranks import broadcast, first_on_rank_zero, gather, rank
from launch.training.saving.choose import choose_checkpoint


def open_output(training_args) -> Path | None:
    """Make the output directory and hold it; the checkpoint to continue from. Called by all ranks together.

    What lies beyond the step where the run goes on is kept under other names: of an earlier run all, and of a run that
    goes back to one of its older checkpoints what it made after that. That the directory can be written, and that an
    earlier run in it may be overwritten, preflight has checked.
    """
    output = Path(training_args.output_dir)
    first_on_rank_zero(lambda: _hold(output) if rank() == 0 else None)
    there = gather((output / LOCK).exists())
    if not all(there):
        raise UserError(
            f"--output_dir: rank {there.index(False)} does not see what rank 0 writes to {output}: it must be on a "
            "file system that all nodes share."
        )
    checkpoint = choose_checkpoint(training_args)
    if not training_args.do_train:
        return None
    goes_on = checkpoint and checkpoint.resolve().parent == output.resolve()
    weights_alone = training_args.ignore_load_lr_and_optim
    step = read_manifest(checkpoint).global_step if goes_on and not weights_alone else 0
    moved = broadcast(first_on_rank_zero(lambda: _keep_later(output, step) if rank() == 0 else {}))
    return moved.get(checkpoint.resolve(), checkpoint) if checkpoint else None


def _hold(output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    lock_output(output)
    remove_partial(output)


def _keep_later(output: Path, step: int) -> dict[Path, Path]:
    """Give the log and the checkpoints of later steps other names; where each checkpoint is now that was moved."""
    log = output / TRAIN_LOG
    if log.exists():
        lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if _step_of(line) <= step] if step else []
        if len(kept) < len(lines):
            os.replace(log, _next_free_name(log))
            if kept:
                with written_aside(log) as file:
                    file.write("".join(kept).encode())
    later = [one for one in checkpoints(output) if checkpoint_step(one) > step]
    if not later:
        return {}
    folder = output / "earlier"
    folder = _next_free_name(folder) if folder.exists() else folder
    folder.mkdir()
    if step:
        print(f"going back to step {step:,}: {len(later)} later checkpoints are kept in {folder}", flush=True)
    moved = {one.resolve(): folder / one.name for one in later}
    for one, place in moved.items():
        os.rename(one, place)
    return moved


def _step_of(line: str) -> float:
    """Of a record; one that a kill cut off is beyond all steps."""
    try:
        return json.loads(line)["global_step"]
    except (ValueError, KeyError):
        return float("inf")


def _next_free_name(path: Path) -> Path:
    """train_log.1.jsonl for train_log.jsonl, or the first number that is free."""
    number = 1
    while path.with_suffix(f".{number}{path.suffix}").exists():
        number += 1
    return path.with_suffix(f".{number}{path.suffix}")

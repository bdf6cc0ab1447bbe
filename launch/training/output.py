"""The output directory: held by one run at a time, nothing of an earlier run is lost."""

import os
from collections.abc import Sequence
from pathlib import Path

from launch.checkpoint.ranks import gather
from launch.checkpoint.state.lock import LOCK, lock_output
from launch.checkpoint.state.manifest import DAMAGED, checkpoint_step, checkpoints, read_manifest
from launch.checkpoint.state.verify import move_aside, remove_partial
from launch.errors import UserError
from launch.reporting.records import cut_log, next_free_name
from launch.training.ranks import broadcast, first_on_rank_zero, rank
from launch.training.saving.choose import Choice, choose_checkpoint


def open_output(training_args) -> Choice:
    """Make the output directory and hold it; the checkpoint to continue from. Called by all ranks together.

    Nothing of an earlier run is moved or removed yet: the run may still be refused. That the directory can be
    written, and that an earlier run in it may be overwritten, preflight has checked.
    """
    output = Path(training_args.output_dir)
    first_on_rank_zero(lambda: _hold(output) if rank() == 0 else None)
    there = gather((output / LOCK).exists())
    if not all(there):
        raise UserError(
            f"--output_dir: rank {there.index(False)} does not see what rank 0 writes to {output}: it must be on a "
            "file system that all nodes share."
        )
    return choose_checkpoint(training_args)


def put_later_aside(checkpoint: Path | None, damaged: Sequence[Path], training_args) -> Path | None:
    """Keep under other names what lies beyond the step where the run goes on: of an earlier run all, of a run that goes
    back to one of its older checkpoints what it made after that. Where the checkpoint to continue from is then. Before
    that, keep damaged checkpoints under theirs, and remove what a kill left of saves.

    Called by all ranks together, when nothing can refuse the run any more.
    """
    output = Path(training_args.output_dir)
    first_on_rank_zero(lambda: _put_damaged_aside(output, damaged) if rank() == 0 else None)
    goes_on = checkpoint and checkpoint.resolve().parent == output.resolve()
    weights_alone = training_args.ignore_load_lr_and_optim
    step = read_manifest(checkpoint).global_step if goes_on and not weights_alone else 0
    moved = broadcast(first_on_rank_zero(lambda: _keep_later(output, step) if rank() == 0 else {}))
    return moved.get(checkpoint.resolve(), checkpoint) if checkpoint else None


def _hold(output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    lock_output(output)


def _put_damaged_aside(output: Path, damaged: Sequence[Path]) -> None:
    remove_partial(output)
    for one in damaged:
        print(f"{one} is kept as {move_aside(one, DAMAGED).name}", flush=True)


def _keep_later(output: Path, step: int) -> dict[Path, Path]:
    """Give the log and the checkpoints of later steps other names; where each checkpoint is now that was moved.

    The newest goes first and the log last: after a kill in between, the log has all steps of the checkpoints left.
    """
    later = [one for one in checkpoints(output) if checkpoint_step(one) > step]
    moved = {}
    if later:
        folder = output / "earlier"
        folder = next_free_name(folder) if folder.exists() else folder
        folder.mkdir()
        moved = {one.resolve(): folder / one.name for one in later}
        if step:
            print(f"going back to step {step:,}: {len(later)} later checkpoints are kept in {folder}", flush=True)
    for one, place in moved.items():
        os.rename(one, place)
    cut_log(output, step)
    return moved

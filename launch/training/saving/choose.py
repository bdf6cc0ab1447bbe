"""Which checkpoint a run continues from: decided on rank 0, the same on all ranks."""

from pathlib import Path

from launch.checkpoint.state.manifest import DAMAGED, MANIFEST, checkpoints
from launch.checkpoint.state.verify import first_fault, is_foreign, move_aside
from launch.errors import UserError
from launch.training.ranks import broadcast, gather, rank, world_size

AUTO, NONE = "auto", "none"


def choose_checkpoint(training_args) -> Path | None:
    """What --resume_from_checkpoint means here; None to start at step 0. Called by all ranks together.

    auto: the newest checkpoint of the output directory that verifies; damaged ones are moved aside and told.
    none: no checkpoint. A path: that one. Raises UserError on all ranks where it is damaged.
    """
    wanted = training_args.resume_from_checkpoint or NONE
    if not training_args.do_train or wanted == NONE or (wanted == AUTO and training_args.overwrite_output_dir):
        return None
    if wanted == AUTO:
        return _newest_whole(Path(training_args.output_dir))
    checkpoint = Path(wanted)
    if not is_foreign(checkpoint):
        fault = _first_fault(checkpoint)
        if fault:
            raise UserError(f"--resume_from_checkpoint: {fault}.")
    return checkpoint


def _newest_whole(output: Path) -> Path | None:
    told = set()
    while True:
        candidate = broadcast(next((str(one) for one in checkpoints(output) if one not in told), None))
        if candidate is None:
            return None
        checkpoint = Path(candidate)
        if broadcast(is_foreign(checkpoint)):
            told.add(checkpoint)
            _tell(f"{checkpoint} was written by PaddleNLP, not by this program: to continue it, name it")
            continue
        fault = _first_fault(checkpoint)
        if fault is None:
            return checkpoint
        if rank() == 0:
            _tell(f"{fault}; kept as {move_aside(checkpoint, DAMAGED).name}, the checkpoint before it is looked at")


def _first_fault(checkpoint: Path) -> str | None:
    """Of all ranks together, each reading its share of the files. Raises UserError where only some see it."""
    there = gather((checkpoint / MANIFEST).is_file())
    if any(there) and not all(there):
        raise UserError(
            f"rank {there.index(False)} does not see {checkpoint}, others do: --output_dir must be on a file system "
            "that all nodes share."
        )
    faults = gather(first_fault(checkpoint, share=(rank(), world_size())))
    return next((fault for fault in faults if fault), None)


def _tell(line: str) -> None:
    if rank() == 0:
        print(f"warning: {line}", flush=True)

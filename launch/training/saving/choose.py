"""Which checkpoint a run continues from: decided on rank 0, the same on all ranks."""

from dataclasses import dataclass
from pathlib import Path

from launch.checkpoint.ranks import gather
from launch.checkpoint.state.continued import AUTO, NONE
from launch.checkpoint.state.manifest import MANIFEST, checkpoints
from launch.checkpoint.state.verify import first_fault, is_foreign, stray_weights
from launch.errors import UserError
from launch.training.ranks import broadcast, rank, world_size


@dataclass(frozen=True)
class Choice:
    """checkpoint: to continue from; None: at step 0. damaged: newer ones, where they were when it was chosen."""

    checkpoint: Path | None = None
    damaged: tuple[Path, ...] = ()


def choose_checkpoint(training_args) -> Choice:
    """What --resume_from_checkpoint means here. Called by all ranks together. Nothing is moved yet.

    auto: the newest checkpoint of the output directory that verifies; damaged ones are told. none: no checkpoint. A
    path: that one. Raises UserError on all ranks where it is damaged, or has weights that the run did not write.
    """
    wanted = training_args.resume_from_checkpoint or NONE
    if not training_args.do_train or wanted == NONE or (wanted == AUTO and training_args.overwrite_output_dir):
        return Choice()
    if wanted == AUTO:
        choice = _newest_whole(Path(training_args.output_dir))
    else:
        choice = Choice(Path(wanted))
        fault = None if is_foreign(choice.checkpoint) else fault_for_all(choice.checkpoint)
        if fault:
            raise UserError(f"--resume_from_checkpoint: {fault}.")
    _require_no_stray(choice.checkpoint)
    return choice


def _require_no_stray(checkpoint: Path | None) -> None:
    if checkpoint is None or broadcast(is_foreign(checkpoint)):
        return
    stray = broadcast(stray_weights(checkpoint))
    if stray:
        raise UserError(f"{stray}: move it elsewhere.")


def _newest_whole(output: Path) -> Choice:
    told: set[Path] = set()
    damaged: list[Path] = []
    while True:
        candidate = broadcast(next((str(one) for one in checkpoints(output) if one not in told), None))
        if candidate is None:
            return Choice(None, tuple(damaged))
        checkpoint = Path(candidate)
        told.add(checkpoint)
        if broadcast(is_foreign(checkpoint)):
            _tell(f"{checkpoint} was written by PaddleNLP, not by this program: to continue it, name it")
            continue
        fault = fault_for_all(checkpoint)
        if fault is None:
            return Choice(checkpoint, tuple(damaged))
        damaged.append(checkpoint)
        _tell(f"{fault}; the checkpoint before it is looked at")


def fault_for_all(checkpoint: Path) -> str | None:
    """The first fault of a checkpoint, None where it is whole. By all ranks together, each its share of the files.

    Raises UserError where only some see it.
    """
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

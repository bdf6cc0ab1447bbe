"""Fill the tensors of this rank from a checkpoint's files, one tensor at a time."""

from pathlib import Path

from launch.checkpoint.state.divided import stored_tensors
from launch.checkpoint.state.reshard import assemble
from launch.checkpoint.state.tensors import Held
from launch.checkpoint.weight_files import listed
from launch.errors import UserError


def restore_tensors(checkpoint: Path, held: list[Held]) -> None:
    """Fill every held tensor with its values in the checkpoint.

    The checkpoint may be of another layout: what this rank has is put together from its parts.
    Raises UserError where some are not there; the run must not go on then.
    """
    stored = stored_tensors(checkpoint)
    missing = []
    for one in held:
        values = assemble(one.part, stored.get((one.kind, one.key, one.dtype), []))
        if values is None:
            missing.append(f"{one.key} {list(one.part.shape_here)} {one.dtype}")
        elif not missing:
            one.fill(values)
    if missing:
        raise UserError(f"{checkpoint} is not of this model: no {listed(missing)}.")

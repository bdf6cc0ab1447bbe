"""Fill the tensors of this rank from a checkpoint's files, one tensor at a time."""

from pathlib import Path

from launch.checkpoint.fit import Misfits
from launch.checkpoint.ranks import gather
from launch.checkpoint.state.divided import stored_tensors
from launch.checkpoint.state.reshard import assemble
from launch.checkpoint.state.tensors import Held
from launch.errors import UserError


def restore_tensors(checkpoint: Path, held: list[Held]) -> None:
    """Fill every held tensor with its values in the checkpoint. Called by all ranks together.

    The checkpoint may be of another layout: what this rank has is put together from its parts.
    Raises UserError on all ranks where some are not there, or some of the checkpoint's of these kinds are no rank's:
    the run must not go on then.
    """
    stored = stored_tensors(checkpoint)
    mine = {(one.kind, one.key, one.dtype) for one in held}
    known = set().union(*gather(mine))
    kinds = {kind for kind, *_ in known}
    extra = {one for one in stored if one[0] in kinds} - known
    _require(checkpoint, Misfits(missing=set(map(_name, known - stored.keys())), extra=set(map(_name, extra))))
    incomplete = set()
    for one in held:
        values = assemble(one.part, stored[one.kind, one.key, one.dtype])
        if values is None:
            incomplete.add(f"{one.key} {list(one.part.shape_here)} {one.dtype}")
        elif not incomplete:
            one.fill(values)
    _require(checkpoint, Misfits(missing=set().union(*gather(incomplete))))


def _name(tensor: tuple[str, str, str]) -> str:
    _, key, dtype = tensor
    return f"{key} {dtype}"


def _require(checkpoint: Path, misfits: Misfits) -> None:
    if misfits:
        raise UserError(f"{checkpoint} is not of this model: {misfits}.")

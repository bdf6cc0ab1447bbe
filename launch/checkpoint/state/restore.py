"""Fill the tensors of this rank from a checkpoint's files, one tensor at a time."""

import json
from pathlib import Path

from launch.checkpoint.safetensors_reader import read_header
from launch.checkpoint.state.parts import Part
from launch.checkpoint.state.reshard import Piece, assemble
from launch.checkpoint.state.tensors import Held
from launch.checkpoint.state.write import PARTS
from launch.checkpoint.weight_files import listed
from launch.errors import UserError


def stored_tensors(checkpoint: Path) -> dict[tuple[str, str, str], list[Piece]]:
    """Everything that the files hold: (kind, key, dtype) -> its parts, from the headers alone."""
    found: dict[tuple[str, str, str], list[Piece]] = {}
    for path in sorted(checkpoint.glob("*-of-*.safetensors")):
        tensors, metadata = read_header(path)
        parts = json.loads(metadata.get(PARTS, "{}"))
        for key, tensor in tensors.items():
            part = Part.from_json(parts[key]) if key in parts else Part(tensor.shape)
            found.setdefault((path.name.split("-")[0], key, tensor.dtype), []).append(Piece(part, tensor.open))
    return found


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

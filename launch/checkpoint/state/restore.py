"""Fill the tensors of this rank from a checkpoint's files, one tensor at a time."""

import json
from dataclasses import dataclass
from pathlib import Path

from launch.checkpoint.safetensors_reader import read_header
from launch.checkpoint.state.parts import Part
from launch.checkpoint.state.tensors import Held
from launch.checkpoint.state.write import PARTS
from launch.checkpoint.stored_tensor import StoredTensor
from launch.checkpoint.weight_files import listed
from launch.errors import UserError


@dataclass(frozen=True)
class Stored:
    """Some elements of a tensor, in a file."""

    part: Part
    tensor: StoredTensor


def stored_tensors(checkpoint: Path) -> dict[tuple[str, str], list[Stored]]:
    """Everything that the files hold: (kind, key) -> its parts, from the headers alone."""
    found: dict[tuple[str, str], list[Stored]] = {}
    for path in sorted(checkpoint.glob("*-of-*.safetensors")):
        tensors, metadata = read_header(path)
        parts = json.loads(metadata.get(PARTS, "{}"))
        for key, tensor in tensors.items():
            part = Part.from_json(parts[key]) if key in parts else Part(tensor.shape)
            found.setdefault((path.name.split("-")[0], key), []).append(Stored(part, tensor))
    return found


def restore_tensors(checkpoint: Path, held: list[Held]) -> None:
    """Fill every held tensor with its values in the checkpoint.

    Raises UserError where some are not there in the part that this rank has; nothing is filled then.
    """
    stored = stored_tensors(checkpoint)
    sources = [_source(one, stored) for one in held]
    missing = [f"{one.key} {list(one.part.shape_here)}" for one, source in zip(held, sources) if source is None]
    if missing:
        raise UserError(f"{checkpoint} does not fit this model and layout: no {listed(missing)}.")
    for one, source in zip(held, sources, strict=True):
        one.fill(source.tensor.open())


def _source(wanted: Held, stored: dict[tuple[str, str], list[Stored]]) -> Stored | None:
    for one in stored.get((wanted.kind, wanted.key), []):
        if one.part == wanted.part and one.tensor.dtype == wanted.dtype:
            return one
    return None

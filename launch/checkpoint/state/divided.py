"""A checkpoint's tensors from the parts that several ranks have written, put together when they are opened. No Paddle.

    weights = divided_weights("checkpoints/llama-7b/checkpoint-500")        # {"lm_head.weight": DividedTensor, ...}
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from launch.checkpoint.safetensors_reader import read_header
from launch.checkpoint.state.parts import Part
from launch.checkpoint.state.reshard import Piece, assemble
from launch.checkpoint.stored_tensor import numpy_dtype
from launch.errors import UserError

MODEL, OPTIMIZER = "model", "optimizer"  # kinds of tensors, and beginnings of the names of their files
PARTS = "parts"  # key of a file's metadata: JSON {tensor's key: Part.to_json()} of those that are not whole


@dataclass(frozen=True)
class DividedTensor:
    """As a StoredTensor, but opening it reads it: memory for all of it, and for one part."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    pieces: list[Piece]

    @property
    def nbytes(self) -> int:
        return numpy_dtype(self.dtype).itemsize * int(np.prod(self.shape, dtype=np.int64))

    def open(self) -> np.ndarray:
        """Raises UserError where not all of its parts are there."""
        whole = assemble(Part(self.shape), self.pieces)
        if whole is None:
            raise UserError(f"{self.key}: parts of it are missing in the checkpoint. Copy all files of one checkpoint.")
        return whole


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


def divided_weights(checkpoint: str | Path) -> dict[str, DividedTensor]:
    """The model's tensors by name, whole, in whatever layout the checkpoint was written."""
    stored = stored_tensors(Path(checkpoint))
    return {
        key: DividedTensor(key, dtype, pieces[0].part.shape, pieces)
        for (kind, key, dtype), pieces in stored.items()
        if kind == MODEL
    }

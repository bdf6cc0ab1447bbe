"""A checkpoint's tensors from the parts that several ranks have written, put together when they are opened. No Paddle.

weights = divided_weights("checkpoints/llama-7b/checkpoint-500")        # {"lm_head.weight": DividedTensor, ...}
"""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from launch.checkpoint.safetensors_reader import AGAIN, read_header
from launch.checkpoint.state.manifest import read_manifest
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
        return self._assembled(Part(self.shape), self.pieces)

    def first(self, count: int) -> np.ndarray:
        """The first elements in row-major order. Their rows alone are read. Raises UserError as
        `open` does."""
        count = min(count, math.prod(self.shape))
        axis = self.pieces[0].part.axis
        if axis is None:
            return self._assembled(Part(self.shape, flat=(0, count)), self.pieces)
        rows = -(-count // max(1, math.prod(self.shape[1:])))
        if axis == 0:
            here = self._assembled(Part(self.shape, 0, ((0, rows),)), self.pieces)
        else:
            shape = (rows, *self.shape[1:])
            pieces = [Piece(replace(one.part, shape=shape), lambda one=one: one.open()[:rows]) for one in self.pieces]
            here = self._assembled(Part(shape), pieces)
        return here.reshape(-1)[:count]

    def _assembled(self, wanted: Part, pieces: list[Piece]) -> np.ndarray:
        found = assemble(wanted, pieces)
        if found is None:
            raise UserError(f"{self.key}: parts of it are missing in the checkpoint. Copy all files of one checkpoint.")
        return found


def stored_tensors(checkpoint: Path) -> dict[tuple[str, str, str], list[Piece]]:
    """Everything that the files of the manifest hold: (kind, key, dtype) -> its parts, from the headers alone.

    Raises UserError where a header does not say what parts its tensors are.
    """
    found: dict[tuple[str, str, str], list[Piece]] = {}
    for name in sorted(read_manifest(checkpoint).files):
        kind = name.split("-")[0]
        if kind not in (MODEL, OPTIMIZER) or not name.endswith(".safetensors"):
            continue
        tensors, metadata = read_header(checkpoint / name)
        try:
            divided = {key: Part.from_json(part) for key, part in json.loads(metadata.get(PARTS, "{}")).items()}
            parts = {key: divided.get(key) or Part(tensor.shape) for key, tensor in tensors.items()}
            agree = all(parts[key].shape_here == tensor.shape for key, tensor in tensors.items())
        except (ValueError, TypeError, AttributeError, IndexError, RecursionError):
            agree = False
        if not agree:
            raise UserError(f"{checkpoint / name}: the parts in its header make no sense. {AGAIN}")
        for key, tensor in tensors.items():
            found.setdefault((kind, key, tensor.dtype), []).append(Piece(parts[key], tensor.open))
    return found


def divided_weights(checkpoint: str | Path) -> dict[str, DividedTensor]:
    """The model's tensors by name, whole, in whatever layout the checkpoint was written."""
    stored = stored_tensors(Path(checkpoint))
    return {
        key: DividedTensor(key, dtype, pieces[0].part.shape, pieces)
        for (kind, key, dtype), pieces in stored.items()
        if kind == MODEL
    }

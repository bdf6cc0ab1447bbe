"""Tensors that several ranks have written in parts: which elements a part has, how parts of one layout become those of
another, and which parts the files of a checkpoint have. No Paddle.

weights = divided_weights("checkpoints/llama-7b/checkpoint-500")        # {"lm_head.weight": DividedTensor, ...}
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from launch.checkpoint.manifest import is_count, read_manifest
from launch.checkpoint.safetensors_file import AGAIN, read_header
from launch.checkpoint.stored_tensor import bytes_of
from launch.errors import UserError


@dataclass(frozen=True)
class Part:
    """Some elements of a tensor.

    shape:  of the whole tensor
    axis:   along which tensor parallelism divides it; None: it does not
    ranges: [start, stop) along the axis that are here, one behind the other; a fused projection has several
    flat:   [start, stop) of these elements in row-major order that are here, where sharding stage 3 slices; None: all
    """

    shape: tuple[int, ...]
    axis: int | None = None
    ranges: tuple[tuple[int, int], ...] = ()
    flat: tuple[int, int] | None = None

    @property
    def is_whole(self) -> bool:
        return self.axis is None and self.flat is None

    @property
    def unsliced_shape(self) -> tuple[int, ...]:
        """The shape of what this rank has before stage 3 slices it."""
        if self.axis is None:
            return self.shape
        length = sum(stop - start for start, stop in self.ranges)
        return (*self.shape[: self.axis], length, *self.shape[self.axis + 1 :])

    @property
    def shape_here(self) -> tuple[int, ...]:
        return self.unsliced_shape if self.flat is None else (self.flat[1] - self.flat[0],)

    def of(self, whole: np.ndarray) -> np.ndarray:
        """These elements of the whole tensor, in shape_here."""
        here = whole
        if self.axis is not None:
            pieces = [np.take(whole, range(start, stop), axis=self.axis) for start, stop in self.ranges]
            here = pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=self.axis)
        return here if self.flat is None else here.reshape(-1)[slice(*self.flat)]

    def to_json(self) -> list:
        return [self.shape, self.axis, self.ranges, self.flat]

    @classmethod
    def from_json(cls, value: list) -> "Part":
        """Raises ValueError or TypeError where it is no part of a tensor."""
        shape, axis, ranges, flat = value
        part = cls(tuple(shape), axis, tuple(map(tuple, ranges)), None if flat is None else tuple(flat))
        if not all(is_count(length) for length in part.shape) or not (axis is None or axis in range(len(shape))):
            raise ValueError(f"no shape and axis: {shape}, {axis}")
        length = part.shape[axis] if axis is not None else 0
        if not all(_is_range(stretch, length) for stretch in part.ranges):
            raise ValueError(f"no ranges of {length} elements: {ranges}")
        if part.flat is not None and not _is_range(part.flat, math.prod(part.unsliced_shape)):
            raise ValueError(f"no elements of {part.unsliced_shape}: {flat}")
        return part


def _is_range(value: tuple, length: int) -> bool:
    start, stop = value
    return is_count(start) and is_count(stop) and start <= stop <= length


def ranges_of(indices: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Indices as [start, stop) ranges: 0 1 2 6 7 are (0, 3), (6, 8)."""
    breaks = np.flatnonzero(np.diff(indices) != 1) + 1
    return tuple((int(run[0]), int(run[-1]) + 1) for run in np.split(indices, breaks))


# ---- a part from parts of another layout: only the elements that are needed are read


Range = tuple[int, int]


@dataclass(frozen=True)
class Piece:
    """Some elements of a tensor that are there. open: gives them, in part.shape_here, without reading them yet."""

    part: Part
    open: Callable[[], np.ndarray]


def assemble(wanted: Part, pieces: Sequence[Piece]) -> np.ndarray | None:
    """The elements of `wanted`, None where the pieces do not have all of them.

    pieces: disjoint, of one tensor, so sharded along one axis at most.
    """
    equal = next((piece for piece in pieces if piece.part == wanted), None)
    if equal is not None:
        return equal.open()
    if any(piece.part.shape != wanted.shape for piece in pieces):
        return None
    parts = [wanted, *(piece.part for piece in pieces)]
    axes = {part.axis for part in parts if part.axis is not None}
    if not any(part.flat for part in parts) and len(axes) == 1:
        return _along_axis(wanted, pieces, axes.pop())
    if not axes:
        return _flat(wanted, pieces)
    if wanted.flat:
        undivided = assemble(replace(wanted, flat=None), pieces)
        return None if undivided is None else undivided.reshape(-1)[slice(*wanted.flat)]
    whole = assemble(Part(wanted.shape), pieces) if not wanted.is_whole else None
    return None if whole is None else wanted.of(whole)


def _along_axis(wanted: Part, pieces: Sequence[Piece], axis: int) -> np.ndarray | None:
    """Both sharded along an axis by tensor parallelism, or one of them and the other not at all."""
    result, missing = None, wanted.unsliced_shape[axis]
    for piece in pieces:
        values = piece.open()
        for source, target in _overlaps(_ranges(piece.part, axis), _ranges(wanted, axis)):
            if result is None:
                result = np.empty(wanted.shape_here, values.dtype)
            _at(result, axis, target)[...] = _at(values, axis, source)
            missing -= target[1] - target[0]
    return result if missing == 0 else None


def _flat(wanted: Part, pieces: Sequence[Piece]) -> np.ndarray | None:
    """Slices of the elements in row-major order, by sharding stage 3, or all of them."""
    size = int(np.prod(wanted.shape, dtype=np.int64))
    requested = wanted.flat or (0, size)
    result, missing = None, requested[1] - requested[0]
    for piece in pieces:
        values = piece.open().reshape(-1)
        if result is None:
            result = np.empty(requested[1] - requested[0], values.dtype)
        for source, target in _overlaps([piece.part.flat or (0, size)], [requested]):
            result[slice(*target)] = values[slice(*source)]
            missing -= target[1] - target[0]
    return result.reshape(wanted.shape_here) if missing == 0 and result is not None else None


def _ranges(part: Part, axis: int) -> Sequence[Range]:
    return part.ranges if part.axis is not None else [(0, part.shape[axis])]


def _overlaps(given: Sequence[Range], requested: Sequence[Range]) -> list[tuple[Range, Range]]:
    """(where it lies among the given, where it goes among the requested) of each stretch that is in both."""
    found, source = [], 0
    for first, last in given:
        target = 0
        for start, stop in requested:
            low, high = max(first, start), min(last, stop)
            if low < high:
                here, there = source + low - first, target + low - start
                found.append(((here, here + high - low), (there, there + high - low)))
            target += stop - start
        source += last - first
    return found


def _at(array: np.ndarray, axis: int, stretch: Range) -> np.ndarray:
    return array[(slice(None),) * axis + (slice(*stretch),)]


# ---- the parts in the files of a checkpoint


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
        return bytes_of(self.dtype, self.shape)

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
            pieces = [
                Piece(replace(piece.part, shape=shape), lambda piece=piece: piece.open()[:rows])
                for piece in self.pieces
            ]
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
            sharded = {key: Part.from_json(part) for key, part in json.loads(metadata.get(PARTS, "{}")).items()}
            parts = {key: sharded.get(key) or Part(tensor.shape) for key, tensor in tensors.items()}
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

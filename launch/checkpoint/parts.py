"""Sharded tensors: the elements of each part, parts of another layout, the parts in a checkpoint's files. No Paddle.

weights = sharded_weights("checkpoints/llama-7b/checkpoint-500")        # {"lm_head.weight": ShardedTensor, ...}
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from launch.checkpoint.manifest import Manifest, is_count, read_manifest
from launch.checkpoint.safetensors_file import AGAIN, read_header
from launch.checkpoint.stored_tensor import bytes_of
from launch.errors import UserError


@dataclass(frozen=True)
class Part:
    """Some elements of a tensor.

    Attributes:
        shape: Of the whole tensor.
        axis: The axis that tensor parallelism shards; None: no axis.
        ranges: [start, stop) along the axis, one after another; a fused projection has several.
        flat: [start, stop) among these elements in row-major order, where sharding stage 3 slices them; None: all.
    """

    shape: tuple[int, ...]
    axis: int | None = None
    ranges: tuple[tuple[int, int], ...] = ()
    flat: tuple[int, int] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the part is the whole tensor."""
        return self.axis is None and self.flat is None

    @property
    def unsliced_shape(self) -> tuple[int, ...]:
        """The shape of the part before stage 3 slices it."""
        if self.axis is None:
            return self.shape
        length = sum(stop - start for start, stop in self.ranges)
        return (*self.shape[: self.axis], length, *self.shape[self.axis + 1 :])

    @property
    def shape_here(self) -> tuple[int, ...]:
        """The shape of the part."""
        return self.unsliced_shape if self.flat is None else (self.flat[1] - self.flat[0],)

    def of(self, whole: np.ndarray) -> np.ndarray:
        """Return the part of a whole tensor, in shape_here."""
        here = whole
        if self.axis is not None:
            pieces = [np.take(whole, range(start, stop), axis=self.axis) for start, stop in self.ranges]
            here = pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=self.axis)
        return here if self.flat is None else here.reshape(-1)[slice(*self.flat)]

    def to_json(self) -> list:
        """Return the part as a JSON-serializable list."""
        return [self.shape, self.axis, self.ranges, self.flat]

    @classmethod
    def from_json(cls, value: list) -> "Part":
        """Return the part of a list.

        Raises:
            ValueError, TypeError: If the value describes no part of a tensor.
        """
        shape, axis, ranges, flat = value
        part = cls(tuple(shape), axis, tuple(map(tuple, ranges)), None if flat is None else tuple(flat))
        if not all(is_count(length) for length in part.shape) or not (axis is None or axis in range(len(shape))):
            raise ValueError(f"no shape and axis: {shape}, {axis}")
        length = part.shape[axis] if axis is not None else 0
        if not all(_is_range(entry, length) for entry in part.ranges):
            raise ValueError(f"no ranges of {length} elements: {ranges}")
        if part.flat is not None and not _is_range(part.flat, math.prod(part.unsliced_shape)):
            raise ValueError(f"no elements of {part.unsliced_shape}: {flat}")
        return part


def _is_range(value: tuple, length: int) -> bool:
    start, stop = value
    return is_count(start) and is_count(stop) and start <= stop <= length


def ranges_of(indices: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Return indices as [start, stop) ranges: 0 1 2 6 7 are (0, 3), (6, 8)."""
    breaks = np.flatnonzero(np.diff(indices) != 1) + 1
    return tuple((int(run[0]), int(run[-1]) + 1) for run in np.split(indices, breaks))


# ---- a part from parts of another layout: only the elements that are needed are read


Range = tuple[int, int]  # [start, stop)


@dataclass(frozen=True)
class Piece:
    """A part in a file.

    Attributes:
        open: Returns its elements in part.shape_here, without reading them yet.
    """

    part: Part
    open: Callable[[], np.ndarray]


def assemble(part: Part, pieces: Sequence[Piece]) -> np.ndarray | None:
    """Return the elements of `part`; None where the pieces lack some.

    pieces: disjoint pieces of one tensor, sharded along one axis at most.
    """
    equal = next((piece for piece in pieces if piece.part == part), None)
    if equal is not None:
        return equal.open()
    if any(piece.part.shape != part.shape for piece in pieces):
        return None
    parts = [part, *(piece.part for piece in pieces)]
    axes = {each.axis for each in parts if each.axis is not None}
    if not any(each.flat for each in parts) and len(axes) == 1:
        return _along_axis(part, pieces, axes.pop())
    if not axes:
        return _flat(part, pieces)
    if part.flat:
        unsliced = assemble(replace(part, flat=None), pieces)
        return None if unsliced is None else unsliced.reshape(-1)[slice(*part.flat)]
    whole = assemble(Part(part.shape), pieces) if not part.is_whole else None
    return None if whole is None else part.of(whole)


def _along_axis(part: Part, pieces: Sequence[Piece], axis: int) -> np.ndarray | None:
    """Return the elements where part and pieces are sharded along one axis, or whole."""
    result, missing = None, part.unsliced_shape[axis]
    for piece in pieces:
        values = piece.open()
        for source, target in _overlaps(_ranges(piece.part, axis), _ranges(part, axis)):
            if result is None:
                result = np.empty(part.shape_here, values.dtype)
            _at(result, axis, target)[...] = _at(values, axis, source)
            missing -= target[1] - target[0]
    return result if missing == 0 else None


def _flat(part: Part, pieces: Sequence[Piece]) -> np.ndarray | None:
    """Return the elements where part and pieces are slices of the elements in row-major order, or whole."""
    size = int(np.prod(part.shape, dtype=np.int64))
    requested = part.flat or (0, size)
    result, missing = None, requested[1] - requested[0]
    for piece in pieces:
        values = piece.open().reshape(-1)
        if result is None:
            result = np.empty(requested[1] - requested[0], values.dtype)
        for source, target in _overlaps([piece.part.flat or (0, size)], [requested]):
            result[slice(*target)] = values[slice(*source)]
            missing -= target[1] - target[0]
    return result.reshape(part.shape_here) if missing == 0 and result is not None else None


def _ranges(part: Part, axis: int) -> Sequence[Range]:
    return part.ranges if part.axis is not None else [(0, part.shape[axis])]


def _overlaps(given: Sequence[Range], requested: Sequence[Range]) -> list[tuple[Range, Range]]:
    """Return for each overlap (its range in the given elements, its range in the requested ones)."""
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


def _at(array: np.ndarray, axis: int, elements: Range) -> np.ndarray:
    return array[(slice(None),) * axis + (slice(*elements),)]


# ---- the parts in the files of a checkpoint


MODEL, OPTIMIZER = "model", "optimizer"  # kinds of tensors, and prefixes of their files' names
PARTS = "parts"  # in a file's metadata: JSON {tensor's key: Part.to_json()} for the tensors that are not whole


@dataclass(frozen=True)
class ShardedTensor:
    """A tensor in several files. Opening it reads it, with memory for all of it and for one part."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    pieces: list[Piece]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return bytes_of(self.dtype, self.shape)

    def open(self) -> np.ndarray:
        """Return the whole tensor.

        Raises:
            UserError: If parts are missing.
        """
        return self._assembled(Part(self.shape), self.pieces)

    def first(self, count: int) -> np.ndarray:
        """Return the first elements in row-major order. It reads only their rows.

        Raises:
            UserError: As `open` does.
        """
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

    def _assembled(self, part: Part, pieces: list[Piece]) -> np.ndarray:
        found = assemble(part, pieces)
        if found is None:
            raise UserError(f"{self.key}: parts of it are missing in the checkpoint. Copy all files of one checkpoint.")
        return found


def stored_tensors(checkpoint: Path, manifest: Manifest | None = None) -> dict[tuple[str, str, str], list[Piece]]:
    """Return the tensors in the files of the manifest, from the headers alone: (kind, key, dtype) -> pieces.

    Raises:
        UserError: If a header lacks the parts of its tensors.
    """
    found: dict[tuple[str, str, str], list[Piece]] = {}
    for name in sorted((manifest or read_manifest(checkpoint)).files):
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


def sharded_weights(checkpoint: str | Path, manifest: Manifest | None = None) -> dict[str, ShardedTensor]:
    """Return the model's tensors by name, from a checkpoint of any layout."""
    stored = stored_tensors(Path(checkpoint), manifest)
    return {
        key: ShardedTensor(key, dtype, pieces[0].part.shape, pieces)
        for (kind, key, dtype), pieces in stored.items()
        if kind == MODEL
    }

"""What one rank holds of a tensor, in the terms of the whole tensor of a single process. No Paddle."""

import math
from dataclasses import dataclass

import numpy as np

from launch.checkpoint.state.manifest import is_count


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
    def undivided_shape(self) -> tuple[int, ...]:
        """Of what is here before stage 3 slices it."""
        if self.axis is None:
            return self.shape
        length = sum(stop - start for start, stop in self.ranges)
        return (*self.shape[: self.axis], length, *self.shape[self.axis + 1 :])

    @property
    def shape_here(self) -> tuple[int, ...]:
        return self.undivided_shape if self.flat is None else (self.flat[1] - self.flat[0],)

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
        if not all(_is_range(one, length) for one in part.ranges):
            raise ValueError(f"no ranges of {length} elements: {ranges}")
        if part.flat is not None and not _is_range(part.flat, math.prod(part.undivided_shape)):
            raise ValueError(f"no elements of {part.undivided_shape}: {flat}")
        return part


def _is_range(value: tuple, length: int) -> bool:
    start, stop = value
    return is_count(start) and is_count(stop) and start <= stop <= length


def ranges_of(indices: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Indices as [start, stop) ranges: 0 1 2 6 7 are (0, 3), (6, 8)."""
    breaks = np.flatnonzero(np.diff(indices) != 1) + 1
    return tuple((int(run[0]), int(run[-1]) + 1) for run in np.split(indices, breaks))

"""A part of a tensor from parts of another layout: only the elements that are asked for are read. No Paddle."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from launch.checkpoint.state.parts import Part

Range = tuple[int, int]


@dataclass(frozen=True)
class Piece:
    """Some elements of a tensor that are there. open: gives them, in part.shape_here, without reading them yet."""

    part: Part
    open: Callable[[], np.ndarray]


def assemble(wanted: Part, pieces: Sequence[Piece]) -> np.ndarray | None:
    """The elements of `wanted`, None where the pieces do not have all of them.

    pieces: disjoint, of one tensor, so divided along one axis at most.
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
    """Both divided along an axis by tensor parallelism, or one of them and the other not at all."""
    result, missing = None, wanted.undivided_shape[axis]
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
    asked = wanted.flat or (0, size)
    result, missing = None, asked[1] - asked[0]
    for piece in pieces:
        values = piece.open().reshape(-1)
        if result is None:
            result = np.empty(asked[1] - asked[0], values.dtype)
        for source, target in _overlaps([piece.part.flat or (0, size)], [asked]):
            result[slice(*target)] = values[slice(*source)]
            missing -= target[1] - target[0]
    return result.reshape(wanted.shape_here) if missing == 0 and result is not None else None


def _ranges(part: Part, axis: int) -> Sequence[Range]:
    return part.ranges if part.axis is not None else [(0, part.shape[axis])]


def _overlaps(given: Sequence[Range], asked: Sequence[Range]) -> list[tuple[Range, Range]]:
    """(where it lies among the given, where it goes among the asked) of each stretch that is in both."""
    found, source = [], 0
    for first, last in given:
        target = 0
        for start, stop in asked:
            low, high = max(first, start), min(last, stop)
            if low < high:
                here, there = source + low - first, target + low - start
                found.append(((here, here + high - low), (there, there + high - low)))
            target += stop - start
        source += last - first
    return found


def _at(array: np.ndarray, axis: int, stretch: Range) -> np.ndarray:
    return array[(slice(None),) * axis + (slice(*stretch),)]

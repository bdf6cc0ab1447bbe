"""Parts of one layout become parts of another, and nothing else is read."""

import itertools

import numpy as np

from launch.checkpoint.parts import Part, Piece, assemble

WHOLE = np.arange(12 * 10, dtype="float32").reshape(12, 10)
SHAPE = WHOLE.shape


def slices(count: int, axis: int) -> list[Part]:
    """Even parts along an axis, as of tensor parallelism."""
    length = SHAPE[axis] // count
    return [Part(SHAPE, axis, ((number * length, (number + 1) * length),)) for number in range(count)]


def fused(count: int) -> list[Part]:
    """Parts of three projections in one matrix: each rank has a stretch of each."""
    length = 12 // 3 // count
    return [
        Part(SHAPE, 0, tuple((4 * third + number * length, 4 * third + (number + 1) * length) for third in range(3)))
        for number in range(count)
    ]


def stage3(count: int) -> list[Part]:
    """Slices of the elements; the last is shorter."""
    length = -(-WHOLE.size // count)
    bounds = [min(number * length, WHOLE.size) for number in range(count + 1)]
    return [Part(SHAPE, flat=pair) for pair in itertools.pairwise(bounds)]


LAYOUTS = {
    "single": [Part(SHAPE)],
    "rows 2": slices(2, 0),
    "rows 4": slices(4, 0),
    "columns 2": slices(2, 1),
    "columns 5": slices(5, 1),
    "fused 2": fused(2),
    "fused 4": fused(4),
    "stage 3 of 2": stage3(2),
    "stage 3 of 7": stage3(7),
}
TOGETHER = [  # an axis is a property of the tensor
    (one, other)
    for one, other in itertools.product(LAYOUTS, LAYOUTS)
    if len({part.axis for name in (one, other) for part in LAYOUTS[name]} - {None}) < 2
]


def pieces(layout: str, opened: list | None = None) -> list[Piece]:
    def piece(part: Part) -> Piece:
        def values() -> np.ndarray:
            if opened is not None:
                opened.append(part)
            return part.of(WHOLE)

        return Piece(part, values)

    return [piece(part) for part in LAYOUTS[layout]]


def test_every_layout_becomes_every_other():
    for stored, wanted in TOGETHER:
        for part in LAYOUTS[wanted]:
            found = assemble(part, pieces(stored))
            assert found.shape == part.shape_here and np.array_equal(found, part.of(WHOLE)), (stored, wanted)
    assert assemble(Part((10, 12)), pieces("single")) is None, "another shape"


def test_a_piece_that_is_not_there_is_not_made_up_and_an_equal_part_is_opened_alone():
    for stored in LAYOUTS.keys() - {"single"}:
        assert assemble(Part(SHAPE), pieces(stored)[:-1]) is None, stored
    assert assemble(Part(SHAPE), []) is None
    opened = []
    assemble(LAYOUTS["rows 4"][2], pieces("rows 4", opened))
    assert opened == [LAYOUTS["rows 4"][2]]

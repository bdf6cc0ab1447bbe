"""Parts of tensors: in terms of the whole, put together from several ranks, and made into those of another layout."""

import itertools

import numpy as np
import pytest
from safetensors.numpy import save_file

from launch.checkpoint import weight_files
from launch.checkpoint.model_identity import base_fingerprint
from launch.checkpoint.parts import Part, Piece, ShardedTensor, assemble, ranges_of
from launch.errors import UserError

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


LAYOUTS = {"single": [Part(SHAPE)], "rows 2": slices(2, 0), "rows 4": slices(4, 0), "columns 2": slices(2, 1)}
LAYOUTS |= {"columns 5": slices(5, 1), "fused 2": fused(2), "fused 4": fused(4)}
LAYOUTS |= {"stage 3 of 2": stage3(2), "stage 3 of 7": stage3(7)}
TOGETHER = [  # an axis is a property of the tensor
    (one, other)
    for one, other in itertools.product(LAYOUTS, LAYOUTS)
    if len({part.axis for name in (one, other) for part in LAYOUTS[name]} - {None}) < 2
]


def pieces(layout: str, opened: list | None = None) -> list[Piece]:
    def values(part: Part) -> np.ndarray:
        if opened is not None:
            opened.append(part)
        return part.of(WHOLE)

    return [Piece(part, lambda part=part: values(part)) for part in LAYOUTS[layout]]


def test_a_part_is_what_it_says_of_the_whole():
    whole = Part(SHAPE)
    assert whole.is_whole and whole.shape_here == SHAPE and np.array_equal(whole.of(WHOLE), WHOLE)
    columns = Part(SHAPE, axis=1, ranges=((0, 1), (4, 6)))  # in several places, as of a fused projection
    assert columns.shape_here == (12, 3)
    assert np.array_equal(columns.of(WHOLE), WHOLE[:, [0, 4, 5]])
    elements = Part(SHAPE, axis=0, ranges=((2, 4),), flat=(3, 8))  # a slice of the elements of some rows
    assert elements.unsliced_shape == (2, 10) and elements.shape_here == (5,)
    assert elements.of(WHOLE).tolist() == [23, 24, 25, 26, 27]
    for part in (whole, columns, elements):
        assert Part.from_json(part.to_json()) == part
    assert ranges_of(np.array([0, 1, 2, 6, 7])) == ((0, 3), (6, 8))
    assert ranges_of(np.array([5])) == ((5, 6),)


def test_every_layout_becomes_every_other():
    for stored, wanted in TOGETHER:
        for part in LAYOUTS[wanted]:
            found = assemble(part, pieces(stored))
            assert found.shape == part.shape_here and np.array_equal(found, part.of(WHOLE)), (stored, wanted)
    assert assemble(Part((10, 12)), pieces("single")) is None, "another shape"
    assert assemble(Part(SHAPE), []) is None
    opened = []
    assemble(LAYOUTS["rows 4"][2], pieces("rows 4", opened))
    assert opened == [LAYOUTS["rows 4"][2]], "an equal part is opened alone"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_opened_a_tensor_is_whole_begins_as_the_whole_and_misses_no_part(layout):
    tensor = ShardedTensor("weight", "float32", SHAPE, pieces(layout))
    assert tensor.nbytes == WHOLE.nbytes and np.array_equal(tensor.open(), WHOLE)
    for count in (1, 10, 11, 35, 61, 120, 999):
        assert np.array_equal(tensor.first(count), WHOLE.reshape(-1)[:count]), count
    if layout != "single":
        for some in (pieces(layout)[:-1], pieces(layout)[1:]):
            assert assemble(Part(SHAPE), some) is None
            with pytest.raises(UserError, match="weight: parts of it are missing in the checkpoint"):
                ShardedTensor("weight", "float32", SHAPE, some).open()


def test_a_base_is_known_without_putting_its_tensors_together(tmp_path, monkeypatch):
    """By the fingerprint of an ordinary directory with these tensors."""
    save_file({"weight": WHOLE}, tmp_path / "model.safetensors", metadata={"format": "np"})
    ordinary = base_fingerprint(tmp_path)
    monkeypatch.setattr(ShardedTensor, "open", None)
    for layout in LAYOUTS:
        divided = {"weight": ShardedTensor("weight", "float32", SHAPE, pieces(layout))}
        monkeypatch.setattr(weight_files, "find_weights", lambda directory, divided=divided: divided)
        assert base_fingerprint(tmp_path) == ordinary

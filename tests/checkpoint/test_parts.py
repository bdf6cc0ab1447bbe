"""Parts of tensors in the terms of the whole."""

import numpy as np

from launch.checkpoint.parts import Part, ranges_of

WHOLE = np.arange(24).reshape(4, 6)


def test_the_whole():
    part = Part((4, 6))
    assert part.is_whole and part.shape_here == (4, 6) and np.array_equal(part.of(WHOLE), WHOLE)


def test_columns_in_several_places_as_of_a_fused_projection():
    part = Part((4, 6), axis=1, ranges=((0, 1), (4, 6)))
    assert part.shape_here == (4, 3)
    assert np.array_equal(part.of(WHOLE), WHOLE[:, [0, 4, 5]])


def test_a_slice_of_the_elements_of_some_rows():
    part = Part((4, 6), axis=0, ranges=((2, 4),), flat=(3, 8))
    assert part.unsliced_shape == (2, 6) and part.shape_here == (5,)
    assert part.of(WHOLE).tolist() == [15, 16, 17, 18, 19]


def test_ranges_of_positions():
    assert ranges_of(np.array([0, 1, 2, 6, 7])) == ((0, 3), (6, 8))
    assert ranges_of(np.array([5])) == ((5, 6),)


def test_through_json():
    for part in (Part((4, 6)), Part((4, 6), 1, ((0, 1), (4, 6))), Part((4, 6), flat=(3, 8))):
        assert Part.from_json(part.to_json()) == part

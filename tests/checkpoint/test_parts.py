"""Parts of tensors in the terms of the whole."""

import numpy as np

from launch.checkpoint.parts import Part, ranges_of

WHOLE = np.arange(24).reshape(4, 6)


def test_a_part_is_what_it_says_of_the_whole():
    whole = Part((4, 6))
    assert whole.is_whole and whole.shape_here == (4, 6) and np.array_equal(whole.of(WHOLE), WHOLE)
    columns = Part((4, 6), axis=1, ranges=((0, 1), (4, 6)))  # in several places, as of a fused projection
    assert columns.shape_here == (4, 3)
    assert np.array_equal(columns.of(WHOLE), WHOLE[:, [0, 4, 5]])
    elements = Part((4, 6), axis=0, ranges=((2, 4),), flat=(3, 8))  # a slice of the elements of some rows
    assert elements.unsliced_shape == (2, 6) and elements.shape_here == (5,)
    assert elements.of(WHOLE).tolist() == [15, 16, 17, 18, 19]
    for part in (whole, columns, elements):
        assert Part.from_json(part.to_json()) == part


def test_ranges_of_positions():
    assert ranges_of(np.array([0, 1, 2, 6, 7])) == ((0, 3), (6, 8))
    assert ranges_of(np.array([5])) == ((5, 6),)

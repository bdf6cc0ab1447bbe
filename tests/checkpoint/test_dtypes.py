"""Floating-point dtypes become each other as IEEE 754 rounds: to nearest, ties to even."""

import numpy as np
import pytest

from launch.checkpoint.stored_tensor import PIECE_ELEMENTS, convert, not_finite

# float32 bits -> bfloat16 bits
ROUNDED = {
    0x3F800000: 0x3F80,  # 1
    0x3F807FFF: 0x3F80,  # below the middle: down
    0x3F808000: 0x3F80,  # the middle: to even
    0x3F808001: 0x3F81,  # above: up
    0x3F818000: 0x3F82,  # the middle: to even
    0xBF818000: 0xBF82,  # the sign does not matter
    0x7F7FFFFF: 0x7F80,  # the largest float32: infinite, as in IEEE 754
    0x7F800000: 0x7F80,
    0xFF800000: 0xFF80,
    0x00000001: 0x0000,
    0x80000000: 0x8000,
}


def test_bfloat16_and_the_other_dtypes():
    values = np.array(list(ROUNDED), np.uint32).view(np.float32)
    assert convert(values, "float32", "bfloat16").tolist() == list(ROUNDED.values())
    for bits in (0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001):  # NaN stays NaN
        [found] = convert(np.array([bits], np.uint32).view(np.float32), "float32", "bfloat16")
        assert found & 0x7F80 == 0x7F80 and found & 0x7F
    every = np.arange(1 << 16, dtype=np.uint16)
    numbers = every[~np.isnan(convert(every, "bfloat16", "float32"))]
    assert np.array_equal(convert(convert(numbers, "bfloat16", "float32"), "float32", "bfloat16"), numbers)
    assert convert(np.array([0x3FC0], np.uint16), "bfloat16", "float32").tolist() == [1.5]
    values = np.array([1.0, 1.00390625, -2.5], np.float16)
    assert convert(values, "float16", "bfloat16").tolist() == [0x3F80, 0x3F80, 0xC020]
    assert convert(values, "float16", "float16") is values, "the same dtype is no copy"


def test_arrays_of_any_shape_are_converted_whole():
    random = np.random.default_rng(0)
    for shape in [(PIECE_ELEMENTS + 7,), (3, PIECE_ELEMENTS // 2 + 1), (5, 4, 3), (0, 4), ()]:
        values = random.normal(size=shape).astype(np.float32)
        assert np.array_equal(convert(values, "float32", "float16"), values.astype(np.float16))


def test_a_finite_value_does_not_become_infinite():
    for value in (65_504.0, 65_519.0, np.inf, np.nan):  # float16 has them
        assert convert(np.array([value]), "float64", "float16").dtype == np.float16
    for value, dtype in ((65_520.0, "float64"), (-1e6, "float32")):
        with pytest.raises(OverflowError) as told:
            convert(np.array([0, value], dtype), dtype, "float16")
        assert told.value.args == (abs(value),)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_what_is_no_number_is_found_in_every_dtype(dtype):
    values = np.random.RandomState(0).normal(size=(3, 5)).astype("float32")
    assert not_finite(convert(values, "float32", dtype), dtype) == 0
    assert not_finite(convert(np.float32([65504, -65504, 0]), "float32", dtype), dtype) == 0
    for row, wrong in enumerate((np.nan, np.inf, -np.inf)):
        values[row, 4] = wrong
        assert not_finite(convert(values, "float32", dtype), dtype) == row + 1
    assert not_finite(np.zeros([0, 4], "uint16" if dtype == "bfloat16" else dtype), dtype) == 0

"""The CPU kernels of the fused RMSNorm, without Paddle: numbers against float64, the same bits with any threads."""

import numpy as np
import pytest

from tests.custom_ops import kernels as k

HIDDEN = [64, 65, 100, 1000, 1023, 4096, 65536]
ROWS = 37
# Against float64, relative to the largest number: a float32 sum, or the rounding of one half-precision number.
ERROR = {"float32": 4e-7, "bfloat16": 2.0**-8, "float16": 2.0**-11}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory) -> k.Kernels:
    return k.compile_kernels(tmp_path_factory.mktemp("kernels"))


def inputs(hidden: int, dtypes=("float32", "float32"), rows: int = ROWS):
    """x, weight and the gradient of y, as arrays of their dtypes."""
    numbers = np.random.default_rng(hidden)
    x = k.encode(numbers.normal(0, 3, (rows, hidden)), dtypes[0])
    weight = k.encode(numbers.normal(1, 0.1, hidden), dtypes[1])
    return x, weight, k.encode(numbers.normal(size=(rows, hidden)), dtypes[1])


def relative_error(found: np.ndarray, right: np.ndarray) -> float:
    return float(np.abs(found - right).max() / np.abs(right).max())


@pytest.mark.parametrize("instruction_set", k.INSTRUCTION_SETS)
@pytest.mark.parametrize("dtypes", k.PAIRS, ids="-".join)
def test_numbers_of_float64(kernels, dtypes, instruction_set):
    if instruction_set not in kernels.instruction_sets:
        pytest.skip(f"this processor has no {instruction_set}")
    for hidden in HIDDEN:
        x, weight, y_grad = inputs(hidden, dtypes)
        y, inverse_rms = kernels.forward(x, weight, dtypes, instruction_set=instruction_set)
        grads = kernels.backward(y_grad, x, weight, inverse_rms, dtypes, instruction_set)
        exact = k.decode(x, dtypes[0]), k.decode(weight, dtypes[1]), k.decode(y_grad, dtypes[1])
        right_y, right_inverse = k.reference_forward(*exact[:2])
        right_grads = k.reference_backward(exact[2], *exact[:2])
        assert relative_error(inverse_rms, right_inverse) <= 2e-7, hidden
        assert relative_error(k.decode(y, dtypes[1]), right_y) <= ERROR[dtypes[1]], hidden
        assert relative_error(k.decode(grads[0], dtypes[0]), right_grads[0]) <= ERROR[dtypes[0]], hidden
        assert relative_error(k.decode(grads[1], dtypes[1]), right_grads[1]) <= ERROR[dtypes[1]], hidden


def test_half_precision_is_rounded_like_numpys(kernels):
    """Weights that take every value of a half: with rows of one size y is the weight, rounded there and back."""
    every = np.arange(2**16, dtype=np.uint16)
    for dtype in ("float16", "bfloat16"):
        bits = every if dtype == "bfloat16" else every.view(np.float16)
        with np.errstate(all="ignore"):
            weight = k.decode(bits, dtype).astype(np.float32)
        finite = np.isfinite(weight)
        for instruction_set in kernels.instruction_sets:
            ones = k.encode(np.ones((1, 2**16)), dtype)
            y, _ = kernels.forward(ones, bits, (dtype, dtype), epsilon=0, instruction_set=instruction_set)
            found = k.decode(y, dtype)
            np.testing.assert_array_equal(found[0][finite], weight[finite])
            np.testing.assert_array_equal(np.isnan(found[0]), np.isnan(weight))
            np.testing.assert_array_equal(np.isinf(found[0]), np.isinf(weight))


def test_results_between_two_halves_go_to_the_nearest(kernels):
    """Normal numbers, those below the smallest normal one, and half-way cases among them."""
    numbers = np.random.default_rng(0)
    weight = (numbers.integers(1, 2**14, 4096) * 2.0**-26).astype(np.float32)
    for dtype in ("float16", "bfloat16"):
        x = k.encode(np.ones((1, 4096)), dtype)
        for instruction_set in kernels.instruction_sets:
            # Beside float32 weights the gradient of x is what is rounded: here that of y times the weight, for pairs
            # of columns that cancel each other in the mean.
            y, inverse_rms = kernels.forward(x, weight, (dtype, "float32"), 0, instruction_set)
            grad = np.zeros((1, 4096), np.float32)
            grad[0, ::2], grad[0, 1::2] = 1, -1
            paired = np.repeat(weight[::2], 2)
            x_grad, _ = kernels.backward(grad, x, paired, inverse_rms, (dtype, "float32"), instruction_set)
            expected = k.encode(grad * paired, dtype)
            np.testing.assert_array_equal(x_grad.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("bfloat16", "float32")], ids="-".join)
@pytest.mark.parametrize(("rows", "hidden"), [(1031, 192), (1500, 4096)])  # the second is written past the caches
def test_same_bits_with_any_number_of_threads(kernels, rows, hidden, dtypes):
    x, weight, y_grad = inputs(hidden, dtypes, rows)
    found = set()
    for threads in (1, 1, 2, 3):
        kernels.set_threads(threads)
        y, inverse_rms = kernels.forward(x, weight, dtypes)
        x_grad, weight_grad = kernels.backward(y_grad, x, weight, inverse_rms, dtypes)
        found.add(b"".join(array.tobytes() for array in (y, inverse_rms, x_grad, weight_grad)))
    assert len(found) == 1
    # A row does not depend on the others, nor on where it is written.
    few = slice(rows - 9, rows)
    np.testing.assert_array_equal(kernels.forward(x[few], weight, dtypes)[0], y[few])
    few_grads = kernels.backward(y_grad[few], x[few], weight, inverse_rms[few], dtypes)
    np.testing.assert_array_equal(few_grads[0], x_grad[few])


def test_what_is_not_a_number_stays_in_its_row(kernels):
    x, weight, y_grad = inputs(100)
    x[3, 50], x[7, 1] = np.nan, np.inf
    y, inverse_rms = kernels.forward(x, weight)
    assert np.isnan(y[3]).all() and np.isnan(y[7, 1])
    x_grad, weight_grad = kernels.backward(y_grad, x, weight, inverse_rms)
    others = np.delete(np.arange(ROWS), [3, 7])
    assert np.isfinite(y[others]).all() and np.isfinite(x_grad[others]).all()
    assert np.isnan(x_grad[3]).all() and np.isnan(weight_grad).all()


@pytest.mark.parametrize("instruction_set", k.INSTRUCTION_SETS)
def test_no_rows(kernels, instruction_set):
    if instruction_set not in kernels.instruction_sets:
        pytest.skip(f"this processor has no {instruction_set}")
    x, weight, y_grad = inputs(65, rows=0)
    y, inverse_rms = kernels.forward(x, weight, instruction_set=instruction_set)
    x_grad, weight_grad = kernels.backward(y_grad, x, weight, inverse_rms, instruction_set=instruction_set)
    assert y.shape == x_grad.shape == (0, 65) and not weight_grad.any()


def test_a_large_mean_and_epsilon(kernels):
    """65536 squares near 10^8: a sum of plain floats would be off by 1e-4."""
    x = np.full((1, 65536), 1e4, np.float32)
    x[0, ::2] += 1
    _, inverse_rms = kernels.forward(x, np.ones(65536, np.float32))
    assert inverse_rms[0] == pytest.approx(1 / np.sqrt(np.square(x.astype(np.float64)).mean()), rel=1e-7)
    x, weight, _ = inputs(100)
    x *= 1e-4
    x[5] = 0
    right_y, right_inverse = k.reference_forward(x.astype(np.float64), weight.astype(np.float64))
    for instruction_set in kernels.instruction_sets:
        y, inverse_rms = kernels.forward(x, weight, instruction_set=instruction_set)
        assert relative_error(inverse_rms, right_inverse) <= 2e-7
        assert relative_error(y, right_y) <= ERROR["float32"]
        assert not y[5].any()

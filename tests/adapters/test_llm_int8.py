"""LLM.int8: how far off, which columns are apart, the gradient, and where the exact rows come from."""

import pytest

RANKS = "tests.adapters.llm_int8_ranks"
COLUMNS = [3, 100, 101, 300, 509]


@pytest.mark.parametrize("rows", [[], [3, 7, 300]], ids=["plain weights", "weights with outliers"])
def test_a_tenth_of_the_error_of_plain_absmax(ranks, rows):
    """Plain: with one scale for each vector (or for all), nothing apart."""
    [found] = ranks(1, f"{RANKS}:errors", COLUMNS, rows)
    assert found["ours"] < 0.1 * found["vector-wise"] < 0.1 * found["tensor-wise"], found
    assert found["ours"] < 0.005


def test_without_the_exact_rows_it_is_less_than_that(ranks):
    """What the weights' own rounding costs where it is multiplied with outliers: why rows are read again."""
    [found] = ranks(1, f"{RANKS}:errors", COLUMNS, [])
    assert 2 * found["ours"] < found["rounded rows"] < 0.5 * found["vector-wise"], found


def test_columns_of_six_and_more_are_apart(ranks):
    assert ranks(1, f"{RANKS}:columns_found", COLUMNS) == [COLUMNS]
    assert ranks(1, f"{RANKS}:columns_found", []) == [[]]
    assert ranks(1, f"{RANKS}:columns_apart_of", [5.99, 6.0, -6.0, 0.0, 7.0]) == [[1, 2, 4]]


@pytest.mark.parametrize("columns", [COLUMNS, []], ids=["with outliers", "without"])
def test_the_gradient_is_that_of_a_dense_layer(ranks, columns):
    [found] = ranks(1, f"{RANKS}:gradients", columns)
    assert found["the weights it stands for"] < 1e-6
    assert found["the weights"] < 0.02


def test_rows_are_read_once_while_they_are_few(ranks):
    """At most 16 of 512 are kept; what is asked for comes whole, however many."""
    wanted = [[5, 9], [5], [9, 7], list(range(10, 23)), [8], [5]]
    [found] = ranks(1, f"{RANKS}:rows_read", wanted)
    assert found["right"] == [True] * len(wanted)
    assert found["read"] == [[5, 9], [7], list(range(10, 23)), [8], [5]]
    many = list(range(40))
    assert ranks(1, f"{RANKS}:rows_read", [many, many])[0] == {"read": [many], "right": [True, True]}


@pytest.mark.parametrize(("dtype", "off"), [("float16", 1e-3), ("bfloat16", 8e-3)])
def test_products_in_half_stay_in_half(ranks, dtype, off):
    """Whole numbers are exact there; a sum of 512 products of up to 127 x 127 would be more than float16 holds."""
    [found] = ranks(1, f"{RANKS}:in_half", dtype)
    assert found["dtypes"] == [f"paddle.{dtype}"] * 3
    assert found["off"] < off

"""LLM.int8: how far off, which columns are apart, the gradient, and where the exact rows come from."""

import pytest

COLUMNS, LARGE_ROWS = [3, 100, 101, 300, 509], [3, 7, 300]
FEW = [[5, 9], [5], [9, 7], list(range(10, 23)), [8], [5]]
MANY = list(range(40))


@pytest.fixture(scope="module")
def found(ranks) -> dict:
    return ranks(1, "tests.adapters.llm_int8_ranks:observe", COLUMNS, LARGE_ROWS, [FEW, [MANY, MANY]])[0]


def test_a_tenth_of_the_error_of_plain_absmax(found):
    """Plain: with one scale for each vector (or for all), nothing apart. Without the exact rows it is less than that:
    the weights' own rounding costs where it is multiplied with outliers, so rows are read again."""
    for of_weights in found["errors"]:
        assert of_weights["ours"] < 0.1 * of_weights["vector-wise"] < 0.1 * of_weights["tensor-wise"], of_weights
        assert of_weights["ours"] < 0.005
    plain = found["errors"][0]
    assert 2 * plain["ours"] < plain["rounded rows"] < 0.5 * plain["vector-wise"], plain


def test_columns_of_six_and_more_are_apart(found):
    assert found["columns"] == [COLUMNS, [], [1, 2, 4]]


def test_the_gradient_is_that_of_a_dense_layer(found):
    for of_columns in found["gradients"]:
        assert of_columns["the weights it stands for"] < 1e-6
        assert of_columns["the weights"] < 0.02


def test_rows_are_read_once_while_they_are_few(found):
    """At most 16 of 512 are kept; what is asked for comes whole, however many."""
    few, many = found["reads"]
    assert few == {"read": [[5, 9], [7], list(range(10, 23)), [8], [5]], "right": [True] * len(FEW)}
    assert many == {"read": [MANY], "right": [True, True]}


def test_products_in_half_stay_in_half(found):
    """Whole numbers are exact there; a sum of 512 products of up to 127 x 127 would be more than float16 holds."""
    for dtype, off in (("float16", 1e-3), ("bfloat16", 8e-3)):
        assert found["half"][dtype]["dtypes"] == [f"paddle.{dtype}"] * 3
        assert found["half"][dtype]["off"] < off

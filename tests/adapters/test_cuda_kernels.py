"""Where Paddle's kernels are right they are used, in products as in gradients; else the reference path computes."""

import pytest

LAYER = "tests.adapters.cuda_kernels_ranks:layer"


@pytest.mark.parametrize("algo", ["weight_only_int8", "weight_only_int4", "llm.int8"])
def test_a_kernel_that_is_right_is_used(ranks, algo):
    """LLM.int8 multiplies outliers with rows that are not rounded, as the weights that codes stand for are."""
    [found] = ranks(1, LAYER, algo)
    assert found["kernel"]
    assert found["off"] < (1e-2 if algo == "llm.int8" else 1e-5)
    assert found["gradient off"] < (1e-2 if algo == "llm.int8" else 1e-5)
    assert found["rounding"] < (0.1 if algo == "weight_only_int4" else 0.01)


@pytest.mark.parametrize("fault", ["absent", "wrong", "transposed"])
def test_a_kernel_that_is_not_is_left_alone(ranks, fault):
    [found] = ranks(1, LAYER, "weight_only_int8", fault)
    assert not found["kernel"]
    assert found["off"] < 1e-5 and found["rounding"] < 0.01


def test_four_bit_floats_have_none(ranks):
    assert not ranks(1, LAYER, "nf4")[0]["kernel"]

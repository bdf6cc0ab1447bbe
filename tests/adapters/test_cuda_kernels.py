"""Where Paddle's kernels are right they are used, in products as in gradients; else the reference path computes."""

import pytest

RANKS = "tests.adapters.cuda_kernels_ranks"
LAYER = f"{RANKS}:layer"


@pytest.mark.parametrize("algo", ["weight_only_int8", "weight_only_int4", "llm.int8"])
def test_a_kernel_that_is_right_is_used(ranks, algo):
    """LLM.int8 multiplies outliers with rows that are not rounded, as the weights that codes stand for are."""
    [found] = ranks(1, LAYER, algo)
    assert found["kernel"]
    assert found["off"] < (1e-2 if algo == "llm.int8" else 1e-5)
    assert found["gradient off"] < (1e-2 if algo == "llm.int8" else 1e-5)
    assert found["rounding"] < (0.1 if algo == "weight_only_int4" else 0.01)


@pytest.mark.parametrize(
    ("algo", "fault", "reason"),
    [
        ("weight_only_int8", "absent", "on trial it raised RuntimeError: weight_quantize: no kernel for this card"),
        ("weight_only_int8", "wrong", "on trial its product of 1 rows was wrong"),
        ("weight_only_int8", "transposed", "on trial its codes did not stand for the weights"),
        ("weight_only_int4", "wrong alone", "on trial its product of 1 rows was wrong"),
        ("llm.int8", "wrong alone", "on trial its product of 1 rows was wrong"),
        ("llm.int8", "cublaslt", "on trial it raised OSError: (External) cublasLtMatmul execution error"),
    ],
)
def test_a_kernel_that_is_not_is_left_alone_and_its_reason_told(ranks, algo, fault, reason):
    [found] = ranks(1, LAYER, algo, fault)
    assert not found["kernel"]
    assert found["off"] < (1e-2 if algo == "llm.int8" else 1e-5)
    assert found["rounding"] < (0.1 if algo == "weight_only_int4" else 0.01)
    assert reason in found["why not"]
    assert f"(1 not on Paddle's kernels: {found['why not']})" in found["said"]


def test_four_bit_floats_have_none(ranks):
    [found] = ranks(1, LAYER, "nf4")
    assert not found["kernel"]
    assert "(1 not on Paddle's kernels: Paddle has none for this format)" in found["said"]


def test_llm_int8_is_given_no_more_rows_than_blocks_of_threads(ranks):
    """A block that takes a second row rounds it with the largest number of both (ReduceAbsMaxKernel)."""
    assert ranks(1, f"{RANKS}:rows_at_once", 5000)[0] == [2048, 2048, 904]
    assert ranks(1, f"{RANKS}:rows_at_once", 2048)[0] == [2048]


def test_what_no_kernel_takes(ranks):
    cases = [
        ("nf4", (64, 64), "float16"),
        ("llm.int8", (64, 64), "float32"),
        ("weight_only_int8", (64, 96), "bfloat16"),
        ("llm.int8", (32832, 64), "float16"),
    ]
    assert ranks(1, f"{RANKS}:reasons", cases)[0] == [
        "Paddle has none for this format",
        "they take float16 and bfloat16, not float32",
        "they take multiples of 64, not 64 x 96",
        "llm_int8_linear takes 32768 inputs at most, not 32832",
    ]

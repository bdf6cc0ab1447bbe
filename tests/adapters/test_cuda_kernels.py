"""Where Paddle's kernels are right they are used, in products as in gradients; else the reference path computes."""

import pytest

RIGHT = ["weight_only_int8", "weight_only_int4", "llm.int8"]
FAULTS = [
    ("weight_only_int8", "absent", "on trial it raised RuntimeError: weight_quantize: no kernel for this card"),
    ("weight_only_int8", "wrong", "on trial its product of 1 rows was wrong"),
    ("weight_only_int8", "transposed", "on trial its codes did not stand for the weights"),
    ("weight_only_int4", "wrong alone", "on trial its product of 1 rows was wrong"),
    ("llm.int8", "wrong alone", "on trial its product of 1 rows was wrong"),
    ("llm.int8", "cublaslt", "on trial it raised OSError: (External) cublasLtMatmul execution error"),
    ("nf4", "", "Paddle has none for this format"),
]
TAKEN_BY_NONE = [
    (("nf4", (64, 64), "float16"), "Paddle has none for this format"),
    (("llm.int8", (64, 64), "float32"), "they take float16 and bfloat16, not float32"),
    (("weight_only_int8", (64, 96), "bfloat16"), "they take multiples of 64, not 64 x 96"),
    (("llm.int8", (32832, 64), "float16"), "llm_int8_linear takes 32768 inputs at most, not 32832"),
]


@pytest.fixture(scope="module")
def found(ranks) -> dict:
    layers = [*((algo, "") for algo in RIGHT), *((algo, fault) for algo, fault, _ in FAULTS)]
    cases = [case for case, _ in TAKEN_BY_NONE]
    return ranks(1, "tests.adapters.cuda_kernels_ranks:observe", layers, [5000, 2048], cases)[0]


def test_a_kernel_that_is_right_is_used(found):
    """LLM.int8 multiplies outliers with rows that are not rounded, as the weights that codes stand for are."""
    for algo, layer in zip(RIGHT, found["layers"], strict=False):
        bound = 1e-2 if algo == "llm.int8" else 1e-5
        assert layer["kernel"] and layer["off"] < bound and layer["gradient off"] < bound, algo
        assert layer["rounding"] < (0.1 if algo == "weight_only_int4" else 0.01), algo


def test_a_kernel_that_is_not_is_left_alone_and_its_reason_told(found):
    for (algo, fault, reason), layer in zip(FAULTS, found["layers"][len(RIGHT) :], strict=True):
        assert not layer["kernel"], (algo, fault)
        assert layer["off"] < (1e-2 if algo == "llm.int8" else 1e-5), (algo, fault)
        assert algo == "nf4" or layer["rounding"] < (0.1 if algo == "weight_only_int4" else 0.01), (algo, fault)
        assert reason in layer["why not"], (algo, fault)
        assert f"(1 not on Paddle's kernels: {layer['why not']})" in layer["said"], (algo, fault)


def test_llm_int8_is_given_no_more_rows_than_blocks_of_threads(found):
    """A block that takes a second row rounds it with the largest number of both (ReduceAbsMaxKernel)."""
    assert found["rows"] == [[2048, 2048, 904], [2048]]


def test_what_no_kernel_takes(found):
    assert found["reasons"] == [reason for _, reason in TAKEN_BY_NONE]

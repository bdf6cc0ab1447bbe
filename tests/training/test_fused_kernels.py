"""The trials of fused kernels find what is right and what is wrong; the models that call them compute the same."""

import pytest

from tests.families.published import LLAMA3

RANKS = "tests.training.fused_kernel_ranks"


def test_the_trial_of_the_rotary_embedding(ranks):
    [found] = ranks(1, f"{RANKS}:rope_faults", ["right", "positions", "sign", "adjacent", "none"])
    assert found.pop("right") == ""
    assert "The kernel `fused_rotary_position_embedding` is not registered" in found.pop("none")
    assert {kind: fault.split(" is off")[0] for kind, fault in found.items()} == {
        "positions": "its result",
        "sign": "its first input's gradient",
        "adjacent": "its result",
    }


def test_the_trial_of_swiglu(ranks):
    """Paddle's CPU build has the operator."""
    [[right, wrong]] = ranks(1, f"{RANKS}:swiglu_faults")
    assert right == "" and wrong.startswith("its second input's gradient is off by 1, allowed 0.00098")


@pytest.mark.parametrize(
    ("sequence_parallel", "switched_on"),
    [(False, ["mp_async_allreduce", "mp_skip_c_identity"]), (True, ["sp_async_reduce_scatter"])],
)
def test_the_trial_of_tensor_parallel(ranks, sequence_parallel, switched_on):
    for right, alone, wrong, *words in ranks(2, f"{RANKS}:overlap_faults", sequence_parallel):
        assert right == "" and alone == "on rank 1: it fails here: no kernel image"  # and no rank waits for another
        assert wrong.startswith("its first input's gradient is off by ")
        assert words == switched_on


CASES = [
    ["llama", {}, False],
    ["llama", {"num_key_value_heads": 2}, True],
    ["llama", {"rope_scaling": LLAMA3}, True],
    ["qwen2", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}}, False],
    ["qwen2", {}, False],
    ["qwen2", {}, True],
]  # fmt: skip


def test_models_with_the_fused_rotary_embedding_compute_the_same(ranks):
    """Its stand-in refuses and computes as the kernel does: all that differs is what paddlenlp hands over."""
    [found] = ranks(1, f"{RANKS}:losses_with_fused_rope", CASES)
    for case, (fused, plain) in zip(CASES, found, strict=True):
        assert (fused[2], plain[2]) == (2, 0), case  # once a layer
        assert fused[0] == pytest.approx(plain[0], abs=2e-6), case
        assert fused[1] == pytest.approx(plain[1], rel=1e-5), case

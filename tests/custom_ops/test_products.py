"""Products in bfloat16 by oneDNN: numbers of float64, what is shared and refused, and a training against float32."""

import numpy as np
import pytest

from launch.cpu.settings import this_processor
from tests.runs import Runs

processor = this_processor()
pytestmark = [
    pytest.mark.long,  # it is built first
    pytest.mark.skipif(processor is None or not processor.has_bfloat16, reason="a CPU with AVX512-bf16 or AMX"),
]


@pytest.fixture(scope="module")
def facts(fused_ranks) -> dict:
    return fused_ranks(1, "tests.custom_ops.product_ranks:facts")[0]


def test_numbers_of_float64(facts):
    """Of rounded factors, but for what float32 sums may lose: forward, packed, and the gradients."""
    assert len(facts["errors"]) == 8
    assert max(map(max, facts["errors"])) <= 1


def test_what_is_shared_left_out_and_refused(facts):
    found = facts["sharing"]
    assert found["rounded"] == [1, 2] and found["changed"] == 16  # a tensor once, until it changes in place
    assert found["backward"] == 3 and found["x_grad"] == 24 and found["weight_grad"]
    assert found["wide"] == "paddle.float64" and found["empty"] == [0, 8]
    reasons = ("4 x 8 times 7 x 8", "a float32 or bfloat16 matrix", "packed for another shape", "bias of 8 numbers")
    assert len(found["refused"]) == len(reasons)
    for error, reason in zip(found["refused"], reasons, strict=True):
        assert reason in error


def test_an_onednn_that_cannot_is_said_and_not_used(fused_ranks):
    """One that is held to AVX2 has no products in bfloat16."""
    environment = {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    (found,) = fused_ranks(1, "tests.custom_ops.product_ranks:without_products", environment=environment)
    reason = "bfloat16 products: dnnl_matmul_primitive_desc_create failed with status 3"
    line = f"precision: float32, chosen here as {reason}; cards from A100 on get bfloat16, those before float16"
    assert found["training"] == [None, "", line]
    assert found["required"] == f"--bf16: found required, but {reason}. Use --bf16 0."
    assert found["answers"] == f"--dtype: found bfloat16, which is not to be had: {reason}. Use --dtype float32."


FAST = {"cpu_fast": "auto"}
LORA = {"lora": 1, "lora_rank": 4}
HALF = FAST | {"bf16": 1}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("method", "flags"),
    [
        ("finetuning", {}),
        ("finetuning", {"loss_chunk_tokens": 24, "recompute": 1}),
        ("finetuning", LORA),
        ("preferences", {}),
    ],
    ids=["whole", "chunked", "lora", "preferences"],
)
def test_a_training_stays_near_float32(fused_ranks, method, flags):
    """Rounding a factor moves a product by up to 2^-9 of it, to either side: most of that cancels in a loss."""
    runs = Runs(fused_ranks)
    plain, half = runs(method, **FAST, **flags), runs(method, **HALF, **flags)
    line = next(line for line in half.stdout.splitlines() if line.startswith("bfloat16: "))
    assert line.endswith("1 output layer, by oneDNN") and "bfloat16: " not in plain.stdout
    difference = np.abs(half.column("loss") / plain.column("loss") - 1)
    print(line, difference.max(), np.abs(half.column("grad_norm") / plain.column("grad_norm") - 1).max())
    assert 0 < difference.max() <= 2.0**-11
    assert np.abs(half.column("grad_norm") / plain.column("grad_norm") - 1).max() <= 2.0**-8
    assert half.weights.keys() == plain.weights.keys()
    assert {weight.dtype for weight in half.weights.values()} == {np.dtype("float32")}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("lora", "algo", "layers"), [({}, None, 15), (LORA, None, 15), ({}, "nf4", 1)], ids=["base", "lora", "nf4"]
)
def test_answers_stay_near_float32(fused_ranks, lora, algo, layers):
    """By --dtype bfloat16, as in predict, evaluate and serve: each of two layers and the head rounds to 2^-9."""
    runs = Runs(fused_ranks)
    adapter = str(runs("finetuning", **FAST, **lora).output) if lora else None
    (found,) = fused_ranks(1, "tests.custom_ops.product_ranks:answers", str(runs.material / "model"), adapter, algo)
    print(found)
    assert found["layers"] == layers and found["off"]["float32"] == 0
    assert 0 < found["off"]["bfloat16"] <= 2.0**-7 and found["served"] <= 2.0**-7

"""A base in 8 or 4 bits is loaded weight by weight: the model in full precision is never in memory."""

import pytest

from tests.checkpoint.loading_memory import MB, SHAPE
from tests.weights.lora_material import llama, save_base

# One weight passes: as it is in the file, as a parameter, in float32 and its codes; a LoRA layer draws another one.
WEIGHTS_AT_ONCE = 6


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A small model, and one of 252 MB whose largest weight has 1 MB."""
    root = tmp_path_factory.mktemp("loading")
    save_base(root / "small", llama())
    save_base(root / "large", llama(**SHAPE))
    assert (root / "large" / "model.safetensors").stat().st_size > 250 * MB
    return root


@pytest.mark.parametrize(
    ("algo", "bits"),
    [
        pytest.param("nf4", 4.13, marks=pytest.mark.long),
        pytest.param("weight_only_int8", 8.13, marks=pytest.mark.nightly),
        pytest.param("llm.int8", 8.13, marks=pytest.mark.nightly),
    ],
)
def test_loading_takes_the_quantized_size_and_one_layer(ranks, models, algo, bits):
    [found] = ranks(1, "tests.adapters.loading_ranks:peak", str(models / "small"), str(models / "large"), algo)
    assert found["quantized"] < 252 * MB * bits / 32
    allowed = found["quantized"] + found["other"] + WEIGHTS_AT_ONCE * found["largest"]
    assert found["tensors"] < allowed < 100 * MB
    assert found["anonymous"] < 0.6 * 252 * MB  # with what the allocator of C keeps between the codes

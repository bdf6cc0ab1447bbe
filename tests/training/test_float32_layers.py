"""--fp32_norms_and_head: which layers compute in float32, and what they answer; --pad_to_multiple_of."""

import numpy as np
import pytest

from launch.families.registry import FAMILIES
from launch.training.batches import PaddingCollator, PrefixCollator

RANKS = "tests.training.float32_ranks"
# Of two layers. ChatGLM2 cannot be made in half precision on a CPU.
NORMS = {"llama": 5, "chatglm": 5, "bloom": 6, "opt": 5, "qwen2": 5, "qwen3": 9}


@pytest.mark.parametrize("name", NORMS)
def test_norms_and_head_compute_in_float32(ranks, name):
    """Norms answer in half precision, for the layer that follows, the head in float32, for the loss."""
    [found] = ranks(1, f"{RANKS}:widened", name)
    assert len(found["norms"]) == NORMS[name] and len(found["heads"]) == 1
    for one in found["norms"]:
        assert one["off"] < 2.0**-10 and one["gradients"] in (["paddle.float16"], [])
    assert found["heads"][0]["off"] < 1e-6
    assert found["line"].startswith(f"norms and output layer: float32 ({NORMS[name]} norms, 1 output layer)")
    assert "Linear" in found["others"] and not [one for one in found["others"] if "Norm" in one]


def test_in_a_model_of_float32_nothing_changes(ranks):
    assert ranks(1, f"{RANKS}:in_float32") == ["norms and output layer: float32, as all of the model"]


def samples(*lengths: int) -> list[dict]:
    return [{"input_ids": np.ones(one, int), "labels": np.r_[-100, np.ones(one - 1, int)]} for one in lengths]


@pytest.mark.parametrize(("lengths", "expected"), [((3, 9), 16), ((8, 5), 8)])
def test_batches_are_padded_to_a_multiple(lengths, expected):
    plain = PaddingCollator(0, None, multiple=8)(samples(*lengths))
    assert plain["input_ids"].shape == plain["labels"].shape == (2, expected)
    assert (plain["labels"][0, lengths[0] :] == -100).all()
    chatglm = PrefixCollator(FAMILIES["chatglm"], 0, multiple=8)(samples(*lengths))
    assert chatglm["attention_mask"].shape == (2, 1, expected, expected)
    assert PaddingCollator(0, None)(samples(*lengths))["input_ids"].shape == (2, max(lengths))

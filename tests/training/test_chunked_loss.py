"""The loss in chunks gives losses, gradients and correct tokens of the loss of whole batches."""

import numpy as np
import pytest

from launch.errors import UserError
from launch.families.arithmetic import loss_chunk
from launch.families.registry import FAMILIES

RANKS = "tests.training.chunked_loss_ranks"
LOSS_BOUND, GRADIENT_BOUND = 2e-6, 1e-5
FAMILY_NAMES = [name for name, family in FAMILIES.items() if family.head]
PRETRAINED = [name for name in FAMILY_NAMES if "pretrain" not in FAMILIES[name].lacking]


def assert_equal(found: dict[str, dict], chunk: str, loss_bound=LOSS_BOUND, gradient_bound=GRADIENT_BOUND) -> None:
    """gradient_bound: of elements, relative to the largest of their tensor."""
    for name, ways in found.items():
        whole, chunked = ways["off"], ways[chunk]
        assert (whole["chunked"], chunked["chunked"]) == (False, True), name
        assert abs(chunked["loss"] - whole["loss"]) <= loss_bound, name
        assert abs(chunked["evaluated"] - whole["evaluated"]) <= loss_bound, name
        assert chunked["correct"] == whole["correct"] != 0, name
        assert chunked["logits"] == whole["logits"] and whole["logits"][-1] == 256, name
        assert chunked["gradients"].keys() == whole["gradients"].keys()
        largest = max(abs(np.array(values[1:])).max() for values in whole["gradients"].values())
        for key, values in whole["gradients"].items():
            expected, difference = np.array(values), np.array(chunked["gradients"][key]) - np.array(values)
            assert abs(difference[0]) <= gradient_bound * max(expected[0], 1e-3 * largest), (name, key)
            bound = gradient_bound * max(abs(expected[1:]).max(), 1e-3 * largest)  # a key's bias moves nothing
            assert abs(difference[1:]).max() <= bound, (name, key)


@pytest.mark.parametrize("loss, names", [("answers", FAMILY_NAMES), ("pretraining", PRETRAINED)])
def test_every_family_gets_the_same(ranks, loss, names):
    """Chunks of 10 tokens, of 64: the last one is shorter."""
    (found,) = ranks(1, f"{RANKS}:compare", names, loss, "10")
    assert_equal(found, "10")


@pytest.mark.parametrize("wide", [False, True], ids=["half", "head in float32"])
def test_bfloat16(ranks, wide):
    """Gradients are rounded to 8 bits at other places."""
    (found,) = ranks(1, f"{RANKS}:compare", ["llama", "mistral", "qwen2"], "pretraining", "10", "bfloat16", False, wide)
    assert_equal(found, "10", gradient_bound=2**-6)


def test_a_frozen_head_gets_no_gradient(ranks):
    (found,) = ranks(1, f"{RANKS}:compare", ["llama", "chatglm"], "answers", "10", "float32", True)
    assert_equal(found, "10")
    for ways in found.values():
        assert len(ways["10"]["gradients"]) == 1


def test_a_loss_that_is_no_number_has_gradients_that_are_none(ranks):
    """As without chunks: the loss scale and the loss watch know what to do with it."""
    assert ranks(1, f"{RANKS}:gradients_of_a_loss_that_is_no_number")[0] == [True, True]


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize(
    "vocabulary, share", [(32_000, 8), pytest.param(152_000, 16, marks=pytest.mark.long)], ids=["32k", "152k"]
)
def test_memory(ranks, vocabulary, share, training):
    """At 4,096 tokens, beside the gradient of the weight, which 16 dimensions make small. That of whole batches grows
    with the tokens, and is measured at a sixteenth of them."""
    for tied in (False, True):
        (whole,) = ranks(1, f"{RANKS}:peak_of_loss", 256, vocabulary, "off", tied, training)
        (chunked,) = ranks(1, f"{RANKS}:peak_of_loss", 4096, vocabulary, "auto", tied, training)
        assert whole > 2 * 256 * vocabulary * 4
        assert chunked * share <= 16 * whole, (tied, chunked, 16 * whole)


def test_chunks_are_a_sixteenth_within_bounds():
    assert loss_chunk("auto", 4096, 32000) == 256
    assert loss_chunk("auto", 4096, 152064) == 110  # 64 MiB of float32 logits
    assert loss_chunk("auto", 512, 32000) == 64
    assert loss_chunk("auto", 40, 32000) == 40
    assert loss_chunk("100", 4096, 32000) == 100
    assert loss_chunk("100", 64, 32000) == 64
    with pytest.raises(UserError, match="--loss_chunk_tokens: found '0', allowed: auto, off or"):
        loss_chunk("0", 64, 32000)

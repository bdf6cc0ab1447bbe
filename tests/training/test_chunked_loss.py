"""The loss in chunks gives losses, gradients and correct tokens of the loss of whole batches."""

import numpy as np
import pytest

from launch.errors import UserError
from launch.families.arithmetic import loss_chunk
from launch.families.registry import FAMILIES

RANKS = "tests.training.chunked_loss_ranks"
LOSS_BOUND, GRADIENT_BOUND = 2e-6, 1e-5
FAMILY_NAMES = list(FAMILIES)
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
        for key, values in whole["gradients"].items():
            difference = np.array(chunked["gradients"][key]) - np.array(values)
            # A bias's gradient is a sum of what its weight's has times inputs of about 1: its rounding errors are as
            # large, though it may be 0 itself, as a key's is, which moves nothing.
            of_weight = whole["gradients"].get(key.replace(".bias", ".weight"), values)
            assert abs(difference[0]) <= gradient_bound * max(values[0], of_weight[0]), (name, key)
            largest = np.abs([*values[1:], *of_weight[1:]]).max()
            assert abs(difference[1:]).max() <= gradient_bound * largest, (name, key)


@pytest.mark.parametrize(
    "loss, names",
    [
        ("answers", ["llama", "chatglm", "qwen2"]),
        pytest.param("answers", FAMILY_NAMES, marks=pytest.mark.long),
        pytest.param("pretraining", PRETRAINED, marks=pytest.mark.nightly),
    ],
    ids=["some", "answers", "pretraining"],
)
def test_every_family_gets_the_same(ranks, loss, names):
    """Chunks of 10 tokens, of 64: the last one is shorter."""
    (found,) = ranks(1, f"{RANKS}:compare", names, loss, "10")
    assert_equal(found, "10")


@pytest.mark.long
@pytest.mark.parametrize("wide", [False, True], ids=["half", "head in float32"])
def test_bfloat16(ranks, wide):
    """Gradients are rounded to 8 bits, by up to 2**-9, at eight other places in two layers."""
    (found,) = ranks(1, f"{RANKS}:compare", ["llama", "mistral", "qwen2"], "pretraining", "10", "bfloat16", False, wide)
    assert_equal(found, "10", gradient_bound=8 * 2**-9)


def test_a_frozen_head_gets_no_gradient(ranks):
    (found,) = ranks(1, f"{RANKS}:compare", ["llama", "chatglm"], "answers", "10", "float32", True)
    assert_equal(found, "10")
    for ways in found.values():
        assert len(ways["10"]["gradients"]) == 1


def test_a_loss_that_is_no_number_has_gradients_that_are_none(ranks):
    """As without chunks: the loss scale and the loss watch know what to do with it."""
    assert ranks(1, f"{RANKS}:gradients_of_a_loss_that_is_no_number")[0] == [True, True]


def test_tokens_that_weigh_differently_have_gradients_that_are_none(ranks):
    """One number multiplies the gradient of the weight: it must not be silently wrong."""
    assert ranks(1, f"{RANKS}:gradients_of_unequal_tokens")[0] == [True, True]


def test_small_gradients_survive_in_float16(ranks):
    """Half of the ids have a probability of 1e-9: its gradient is 0 in float16 unless the loss scale comes first."""
    (found,) = ranks(1, f"{RANKS}:float16_gradients", 2.0**17)
    for key in found["off"]:
        whole, chunked = (np.array(found[way][key]) for way in ("off", "10"))
        assert abs(chunked - whole).max() <= 2**-9 * abs(whole).max(), key
    whole, chunked = (np.array(found[way]["weight"])[0, 128:] for way in ("off", "10"))
    assert whole.any() and abs(chunked - whole).max() <= 0.1 * abs(whole).max()


@pytest.mark.nightly
def test_tensor_parallel_in_chunks_is_one_process_whole(ranks, tmp_path):
    """Every family that has it: each rank has a part of the vocabulary."""
    names = [name for name in FAMILY_NAMES if "tensor_parallel" not in FAMILIES[name].lacking]
    ranks(1, "tests.families.family_ranks:save_all", names, str(tmp_path))
    (whole,) = ranks(1, f"{RANKS}:of_ranks", names, str(tmp_path), 1, "off")
    for found in ranks(2, f"{RANKS}:of_ranks", names, str(tmp_path), 2, "10"):
        for name, expected in whole.items():
            assert abs(found[name]["loss"] - expected["loss"]) <= LOSS_BOUND, name
            assert found[name]["grad_norm"] == pytest.approx(expected["grad_norm"], rel=GRADIENT_BOUND), name


@pytest.mark.long
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize(
    "vocabulary, share", [(32_000, 8), pytest.param(152_000, 16, marks=pytest.mark.nightly)], ids=["32k", "152k"]
)
def test_memory(ranks, vocabulary, share, training):
    """At 4,096 tokens, beside the gradient of the weight, which 16 dimensions make small. That of whole batches grows
    with the tokens, and is measured at a sixteenth of them."""
    for tied in (False, True):
        (whole,) = ranks(1, f"{RANKS}:peak_of_loss", 256, vocabulary, "off", tied, training)
        (chunked,) = ranks(1, f"{RANKS}:peak_of_loss", 4096, vocabulary, "auto", tied, training)
        assert whole > 2 * 256 * vocabulary * 4
        assert chunked * share <= 16 * whole, (tied, chunked, 16 * whole)


@pytest.mark.parametrize(
    "tokens, vocabulary, trained, chunk",
    [
        (4096, 32000, False, 256),
        (16384, 32000, False, 1024),
        (4096, 152064, False, 220),  # 128 MiB of float32 logits
        (512, 32000, False, 0),  # two chunks of 256 take as much
        (513, 32000, False, 256),
        (8192, 32000, True, 1024),  # a quarter of the inputs: one addition to the gradient for as many tokens
        (6144, 32000, True, 0),  # its gradient and a chunk are worth 3072 tokens
        (6145, 32000, True, 1024),
        (4096, 256, True, 0),
    ],
)
def test_auto_is_in_chunks_where_they_take_less_than_half(tokens, vocabulary, trained, chunk):
    """Of a model with 4,096 dimensions."""
    assert loss_chunk("auto", tokens, vocabulary, 4096, trained) == chunk


def test_one_process_has_the_chunks_of_one_tensor_parallel_rank(ranks):
    """PaddleNLP's degree is -1 where a process is alone: a negative vocabulary would make chunks of one token."""
    assert ranks(1, f"{RANKS}:auto_chunks", -1) == ranks(1, f"{RANKS}:auto_chunks", 1) == [[512, 256]]


def test_the_flag_says_how_many_tokens():
    assert loss_chunk("100", 4096, 32000, 4096, True) == 100
    assert loss_chunk("100", 64, 32000, 4096, True) == 64
    assert loss_chunk("off", 4096, 32000, 4096, False) == 0
    with pytest.raises(UserError, match="--loss_chunk_tokens: found '0', allowed: auto, off or"):
        loss_chunk("0", 64, 32000, 4096, True)

"""Rank functions of test_sequence_ranks.py: ranks that share packed samples beside one that has them whole."""

import numpy as np
import paddle

from launch.families.registry import FAMILIES
from launch.training.batches import PaddingCollator
from launch.training.batches import apart as masks_of
from launch.training.sequence_ranks import TokensOfRank, share_sequences
from tests.families.family_ranks import batch, build, start_fleet, tiny

STARTS = ([0, 5, 11], [0])  # of the samples in the two rows


def compare(names: list[str], granularity: str) -> tuple[dict[str, float], int]:
    """By family, the largest difference of the loss and of all gradients, relative to the tensor's largest element;
    the multiple of a length of batches that were multiples of 3."""
    rank, ranks = paddle.distributed.get_rank(), paddle.distributed.get_world_size()
    start_fleet(dp_degree=ranks)
    multiple = TokensOfRank(PaddingCollator(0, None, multiple=3), rank, ranks).collate.multiple
    return {name: differences(name, granularity, rank, ranks) for name in names}, multiple


def differences(name: str, granularity: str, rank: int, ranks: int) -> float:
    model = build(name, tiny(name, recompute_granularity=granularity))
    model.train()
    whole = {key: value.numpy() for key, value in batch(FAMILIES[name], samples=len(STARTS)).items()}
    length = whole["labels"].shape[1]
    begins = [[max(start for start in row if start <= place) for place in range(length)] for row in STARTS]
    whole["position_ids"] = np.arange(length) - np.array(begins)
    whole["attention_mask"] = masks_of(whole["position_ids"])
    expected = outcome(model, whole)
    share_sequences(model, ranks)
    if granularity != "full":
        model.recompute_enable()
    found = outcome(model, TokensOfRank(lambda samples: dict(whole), rank, ranks)([]))
    tables = [
        layer.rotary_emb(paddle.ones([1, 1, 1, 1]), seq_len=length // ranks)
        for layer in model.sublayers()
        if hasattr(layer, "attn_func")
    ]
    assert [cosine.shape[1] for cosine, _ in tables] == [length] * 2
    for one in found.values():
        paddle.distributed.all_reduce(one)
    return max(float((found[key] / ranks - expected[key]).abs().max() / expected[key].abs().max()) for key in expected)


def outcome(model, arrays: dict) -> dict[str, paddle.Tensor]:
    """The loss of a batch, and all gradients, by name."""
    loss = model(**{key: paddle.to_tensor(value) for key, value in arrays.items()})
    loss = loss[0] if isinstance(loss, tuple) else loss
    loss.backward()
    found = {"loss": loss.detach()} | {key: one.grad.clone() for key, one in model.named_parameters()}
    model.clear_gradients()
    return found

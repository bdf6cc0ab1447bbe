"""Several ranks share each sample (--sep_parallel_degree): DeepSpeed-Ulysses, arXiv 2309.14509.

A rank has a part of a sample's tokens, and in attention all of its tokens for a part of the heads: before attention
each rank sends each other the queries, keys and values of that one's heads, and gets its own tokens' outputs back. To
Paddle these ranks are of data parallel or sharding. They sum gradients and share the optimizer's states as those do.

paddlenlp's own way is not used. LLaMA alone has it (paddlenlp/transformers/llama/modeling.py), and it replaces masks
and positions by those of one text a row. The lists that segment_parallel_utils.py, _reshard_qkv, gives
paddle.distributed.alltoall are in the order of Paddle 2: Paddle 3 writes the second into the first.
Sharding stage 2 is told of no ranks but its own and data parallel's (trainer.py, Trainer._wrap_model), and would not
sum gradients over these.
"""

import math
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import paddle
from paddle.autograd import PyLayer

Tensor = paddle.Tensor
KEPT_WHOLE = ("attention_mask", "attn_mask_startend_row_indices")  # attention reads them for all tokens


class TokensOfRank:
    """A collator of this rank's part of the tokens of a batch, with their positions, and masks of all tokens."""

    def __init__(self, collate: Any, rank: int, ranks: int):
        self.collate, self.rank, self.ranks = collate, rank, ranks
        if hasattr(collate, "multiple"):  # of the length of a batch whose samples differ in it
            collate.multiple = math.lcm(collate.multiple, ranks)

    def __call__(self, samples: list) -> dict:
        """Return the part of the batch of some samples."""
        batch = self.collate(samples)
        rows, length = batch["input_ids"].shape
        batch.setdefault("position_ids", np.tile(np.arange(length), (rows, 1)))
        size = length // self.ranks
        part = slice(self.rank * size, (self.rank + 1) * size)
        return {key: value if key in KEPT_WHOLE else value[:, part] for key, value in batch.items()}


def share_sequences(model, ranks: int) -> list[str]:
    """Let the attention of a model exchange heads between the ranks of a sample; lines for the user.

    All ranks call it together. Those that share a sample are neighbors.
    """
    if ranks == 1:
        return []
    world, own = paddle.distributed.get_world_size(), paddle.distributed.get_rank()
    groups = [paddle.distributed.new_group(list(range(first, first + ranks))) for first in range(0, world, ranks)]
    group = groups[own // ranks]
    layers = [layer for layer in model.sublayers() if hasattr(layer, "attn_func")]
    for layer in layers:
        layer.attn_func = _over_heads(layer.attn_func, group)
        layer.rotary_emb.forward = partial(_of_all_tokens, layer.rotary_emb.forward, ranks)
    return [f"sep_parallel_degree {ranks}: attention of {len(layers)} layers exchanges heads between {ranks} ranks"]


def _of_all_tokens(forward: Callable, ranks: int, x: Tensor, seq_len: int) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of a whole sample, where those of its part on a rank are asked for."""
    return forward(x, seq_len=seq_len * ranks)


def _over_heads(attend: Callable, group) -> Callable:
    """Return attention of tokens that are divided over the ranks, by `attend`, which has all of some heads' tokens.

    Queries, keys and values are [batch, length / ranks, heads, size], the output [batch, length / ranks, heads x size].
    A mask of other than all tokens is the model's own of this rank's part: there is none.
    """

    def exchanged(query, config, key, value, attention_mask, output_attentions, *others, **named):
        query, key, value = (Exchange.apply(x, group, True) for x in (query, key, value))
        batch, length, _, size = query.shape
        if attention_mask is not None and attention_mask.shape[-1] != length:
            attention_mask = None
        out = attend(query, config, key, value, attention_mask, output_attentions, *others, **named)
        out = Exchange.apply(out.reshape([batch, length, -1, size]), group, False)
        return out.reshape([batch, length // group.nranks, -1])

    exchanged.__signature__ = signature(attend)  # by which recomputation sorts keyword arguments into places
    return exchanged


class Exchange(PyLayer):
    """Tokens for heads between ranks: [batch, length / ranks, heads, size] <-> [batch, length, heads / ranks, size]."""

    @staticmethod
    def forward(ctx, x, group, to_heads: bool):
        """Exchange. to_heads: from a part of the tokens to a part of the heads."""
        ctx.group, ctx.to_heads = group, to_heads
        return _exchange(x, group, to_heads)

    @staticmethod
    def backward(ctx, gradient):
        """Return the gradient, which goes the other way."""
        return _exchange(gradient, ctx.group, not ctx.to_heads)


def _exchange(x: Tensor, group, to_heads: bool) -> Tensor:
    ranks, (batch, length, heads, size) = group.nranks, x.shape
    if to_heads:
        parts = x.reshape([batch, length, ranks, heads // ranks, size]).transpose([2, 0, 1, 3, 4])
    else:
        parts = x.reshape([batch, ranks, length // ranks, heads, size]).transpose([1, 0, 2, 3, 4])
    parts = parts.contiguous()  # one for each rank
    received = paddle.empty_like(parts)
    paddle.distributed.alltoall_single(received, parts, group=group)
    del parts
    if to_heads:
        return received.transpose([1, 0, 2, 3, 4]).reshape([batch, ranks * length, heads // ranks, size])
    return received.transpose([1, 2, 0, 3, 4]).reshape([batch, length // ranks, ranks * heads, size])

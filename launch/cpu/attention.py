"""Causal attention for a CPU, without a [b, 1, s, s] mask built anew in each step and broadcast over heads.

An `attention_mask` of None is the pipeline model's word for "causal, nothing padded". Here the plain model
says it, too: a mask of ones becomes None, and None is computed with one kept [s, s] mask, which broadcasts
over leading axes only.
"""

import math
from collections.abc import Callable
from types import MethodType

import paddle
import paddle.nn.functional as F

from launch.cpu.by_shape import ByShape


class CausalAttention:
    """`scaled_dot_product_attention` of LLaMA where the mask is None; `stock` takes every other call."""

    def __init__(self, stock: Callable, masks: ByShape):
        self._stock = stock
        self._masks = masks

    # The signature is stock's to the letter: recomputation sorts keyword arguments into places by it.
    def __call__(
        self,
        query_states,
        config,
        key_states,
        value_states,
        attention_mask,
        output_attentions,
        alibi=None,
        attn_mask_startend_row_indices=None,
        sequence_parallel=False,
        reshard_layer=None,
        npu_is_casual=False,
        skip_recompute=False,
    ):
        """query, key, value [b, s, heads, d] -> [b, s, heads * d]; sequence parallel: [b * s, heads * d]."""
        plain = (
            attention_mask is None
            and alibi is None
            and attn_mask_startend_row_indices is None
            and reshard_layer is None
            and not output_attentions
            and not config.use_flash_attention
            and config.context_parallel_degree <= 1
            and query_states.dtype == paddle.float32
            and query_states.shape == key_states.shape == value_states.shape
        )
        if not plain:
            return self._stock(
                query_states,
                config,
                key_states,
                value_states,
                attention_mask,
                output_attentions,
                alibi,
                attn_mask_startend_row_indices,
                sequence_parallel,
                reshard_layer,
                npu_is_casual,
                skip_recompute,
            )
        batch, length, heads, head_dim = query_states.shape
        output = self._attend(query_states, key_states, value_states)
        rows = [batch * length] if sequence_parallel else [batch, length]
        return output.reshape([*rows, heads * head_dim])

    def _attend(self, query, key, value):
        """[b, s, heads, d] three times -> [b, s, heads, d]."""
        length, head_dim = query.shape[1], query.shape[3]
        query = paddle.transpose(query * (1.0 / math.sqrt(head_dim)), [0, 2, 1, 3])
        key = paddle.transpose(key, [0, 2, 1, 3])
        value = paddle.transpose(value, [0, 2, 1, 3])
        mask = self._masks.get((length,), lambda: causal_mask(length))
        weights = F.softmax(paddle.matmul(query, key, transpose_y=True) + mask, axis=-1)
        return paddle.transpose(paddle.matmul(weights, value), [0, 2, 1, 3])


def replace(attention: paddle.nn.Layer, masks: ByShape) -> None:
    """Give this one LlamaAttention layer the fast function, over the one it has."""
    attention.attn_func = CausalAttention(attention.attn_func, masks)


def replace_mask(model: paddle.nn.Layer) -> None:
    """Make this one LlamaModel hand its layers None instead of a mask that says no more than "causal"."""
    model._prepare_decoder_attention_mask = MethodType(_prepare_decoder_attention_mask, model)


def _prepare_decoder_attention_mask(model, attention_mask, input_shape, past_key_values_length, dtype):
    causal_only = (
        dtype == paddle.float32
        and past_key_values_length == 0
        and not model.config.alibi
        and not model.config.use_flash_attention
        and attention_mask is not None
        and len(attention_mask.shape) == 2
        and bool(attention_mask.astype("bool").all())
    )
    if causal_only:
        return None
    return type(model)._prepare_decoder_attention_mask(attention_mask, input_shape, past_key_values_length, dtype)


def causal_mask(length: int) -> paddle.Tensor:
    """[s, s]: 0 where a position may look, the least float32 above the diagonal (stock's value)."""
    return paddle.triu(paddle.full([length, length], paddle.finfo(paddle.float32).min), diagonal=1)

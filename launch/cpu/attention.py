"""Causal attention and rotary position embedding for a CPU.

Where the compiled operators are given (fused_ln.cpu), they compute both; this is what is done without them.

Attention: without a [b, 1, s, s] mask built anew in each step and broadcast over heads. An `attention_mask` of None
means "causal, nothing padded" to the pipeline model. The plain model is given the same meaning here: a mask of ones
becomes None, and None is computed with one kept [s, s] mask, which broadcasts over leading axes only.

Rotary embedding: full-shape products, and the half rotation as one matmul. Stock multiplies [b, s, heads, d] by
[b, s, 1, d], which broadcasts in the middle (40 times slower than a product of equal shapes), and rotates by slicing
and joining. Attention calls `apply_rotary_pos_emb` as a name of its module; so each attention layer here gets its own
class's forward again, rebuilt to see another function under that one name. The module and all other models stay as
they are.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from types import FunctionType, MethodType, ModuleType
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle.autograd import PyLayer


class ByShape:
    """Tensors that depend on nothing but a shape: the last `limit` shapes' are stored, older ones are dropped.

    A training uses two or three shapes.
    """

    def __init__(self, limit: int = 4):
        self._limit = limit
        self._made: OrderedDict[tuple[int, ...], Any] = OrderedDict()

    def get(self, shape: tuple[int, ...], make: Callable[[], Any]) -> Any:
        """Return the tensors of this shape, made by `make` without gradients where they are not stored."""
        if shape not in self._made:
            with paddle.no_grad():
                self._made[shape] = make()
        self._made.move_to_end(shape)
        while len(self._made) > self._limit:
            self._made.popitem(last=False)
        return self._made[shape]


# Attention layers whose module has LLaMA's apply_rotary_pos_emb.
ROTARY_ATTENTIONS = frozenset({"LlamaAttention", "Qwen2Attention", "Qwen3Attention"})


class RotaryEmbedding:
    """`apply_rotary_pos_emb` of one model, with its tables by shape. `stock` takes what does not fit."""

    def __init__(self, stock: Callable, compiled: ModuleType | None = None):
        self._stock = stock
        self._compiled = compiled
        self._tables = ByShape()
        self._position_ids = None  # those that were looked at last: all layers of a step get the same tensor
        self._from_the_start = True

    def __call__(self, q, k, cos, sin, position_ids):
        """Rotate q and k [b, s, heads, d] (k: fewer heads or as many). cos and sin: [1, length, 1, d]. ids: [b, s]."""
        fits = q.dtype == k.dtype == cos.dtype == paddle.float32 and q.shape[-1] % 2 == 0
        if not (fits and cos.shape[1] == q.shape[1] == k.shape[1]):
            return self._stock(q, k, cos, sin, position_ids)
        if position_ids is not self._position_ids:
            # Every row must count 0, 1, 2, ...; None means just that.
            self._from_the_start = True
            if position_ids is not None:
                counted = paddle.arange(position_ids.shape[-1], dtype=position_ids.dtype)
                self._from_the_start = bool((position_ids == counted).all())
            self._position_ids = position_ids
        if not self._from_the_start:
            return self._stock(q, k, cos, sin, position_ids)
        if self._compiled:
            return tuple(self._compiled.rotary_embedding(x, cos, sin) for x in (q, k))
        return Rotate.apply(q, *self._table(q, cos, sin)), Rotate.apply(k, *self._table(k, cos, sin))

    def _table(self, x, cos, sin):
        shape = tuple(x.shape)
        # A model's cos and sin are a function of the sequence length alone, in every layer the same.
        return self._tables.get(shape, lambda: (*spread(cos, sin, shape), half_rotation(shape[-1])))


def replace_rotary(attention: paddle.nn.Layer, rotary: Callable) -> None:
    """Make this one layer (its class is in ROTARY_ATTENTIONS) call `rotary` instead of apply_rotary_pos_emb."""
    forward = type(attention).forward
    seen = {**forward.__globals__, "apply_rotary_pos_emb": rotary}
    rebuilt = FunctionType(forward.__code__, seen, forward.__name__, forward.__defaults__)
    attention.forward = MethodType(rebuilt, attention)


def stock_rotary(attention_class: type) -> Callable:
    """Return the apply_rotary_pos_emb that this class of attention layers calls."""
    return attention_class.forward.__globals__["apply_rotary_pos_emb"]


def spread(cos: paddle.Tensor, sin: paddle.Tensor, shape: tuple[int, ...]) -> tuple[paddle.Tensor, ...]:
    """Return cos and sin [1, s, 1, d] written out to the full shape [b, s, heads, d]."""
    return tuple(table.expand(shape).contiguous() for table in (cos, sin))


def half_rotation(head_dim: int) -> paddle.Tensor:
    """Return the matrix [d, d] for which x @ it is rotate_half(x): (x1, x2) -> (-x2, x1)."""
    half = paddle.eye(head_dim // 2)
    none = paddle.zeros_like(half)
    return paddle.concat([paddle.concat([none, half], axis=1), paddle.concat([-half, none], axis=1)], axis=0)


class Rotate(PyLayer):
    """x * cos + rotate_half(x) * sin; x, cos and sin [b, s, heads, d], rotation from `half_rotation`."""

    @staticmethod
    def forward(ctx, x, cos, sin, rotation):
        """Compute the rotation."""
        ctx.save_for_backward(cos, sin, rotation)
        return x * cos + paddle.matmul(x, rotation) * sin

    @staticmethod
    def backward(ctx, grad):
        """Compute the gradient of x."""
        cos, sin, rotation = ctx.saved_tensor()
        x_grad = grad * cos + paddle.matmul(grad * sin, rotation, transpose_y=True)
        return x_grad, None, None, None


class CausalAttention:
    """`scaled_dot_product_attention` of LLaMA where the mask is None; `stock` takes every other call."""

    def __init__(self, stock: Callable, masks: ByShape, compiled: ModuleType | None = None, bfloat16: bool = False):
        self._stock = stock
        self._masks = masks
        self._compiled = compiled
        self._bfloat16 = bfloat16

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
        """Attend: query, key, value [b, s, heads, d] -> [b, s, heads * d]; sequence parallel: [b * s, heads * d]."""
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
        """Attend: [b, s, heads, d] three times -> [b, s, heads, d]."""
        length, head_dim = query.shape[1], query.shape[3]
        if self._compiled and head_dim % self._compiled.HEAD_SIZES == 0:
            return self._compiled.causal_attention(query, key, value, 1.0 / math.sqrt(head_dim), self._bfloat16)
        query = paddle.transpose(query * (1.0 / math.sqrt(head_dim)), [0, 2, 1, 3])
        key = paddle.transpose(key, [0, 2, 1, 3])
        value = paddle.transpose(value, [0, 2, 1, 3])
        # 0 where a position may look, the least float32 above the diagonal: stock's value.
        least = paddle.finfo(paddle.float32).min
        mask = self._masks.get((length,), lambda: paddle.triu(paddle.full([length, length], least), diagonal=1))
        weights = F.softmax(paddle.matmul(query, key, transpose_y=True) + mask, axis=-1)
        return paddle.transpose(paddle.matmul(weights, value), [0, 2, 1, 3])


def replace_attention(
    attention: paddle.nn.Layer, masks: ByShape, compiled: ModuleType | None = None, bfloat16: bool = False
) -> None:
    """Give this one LlamaAttention layer the fast function, over the one it has. bfloat16: see kernels.apply."""
    attention.attn_func = CausalAttention(attention.attn_func, masks, compiled, bfloat16)


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

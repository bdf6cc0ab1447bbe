"""Rotary position embedding for a CPU: full-shape products, and the half rotation as one matmul.

Stock multiplies [b, s, heads, d] by [b, s, 1, d], which broadcasts in the middle (40 times slower than a
product of equal shapes), and rotates by slicing and joining. Attention calls `apply_rotary_pos_emb` as a name
of its module; so each attention layer here gets its own class's forward again, rebuilt to see another
function under that one name. The module and all other models stay as they are.
"""

from collections.abc import Callable
from types import FunctionType, MethodType

import paddle
from paddle.autograd import PyLayer

from launch.cpu.by_shape import ByShape

# Attention layers whose module has LLaMA's apply_rotary_pos_emb.
CLASSES = frozenset({"LlamaAttention", "Qwen2Attention"})


class RotaryEmbedding:
    """`apply_rotary_pos_emb` of one model, with its tables by shape. `stock` takes what does not fit."""

    def __init__(self, stock: Callable):
        self._stock = stock
        self._tables = ByShape()
        self._position_ids = None  # those that were looked at last: all layers of a step get the same tensor
        self._from_the_start = True

    def __call__(self, q, k, cos, sin, position_ids):
        """q and k [b, s, heads, d] (k: fewer heads or as many), cos and sin [1, length, 1, d], ids [b, s]."""
        fits = q.dtype == k.dtype == cos.dtype == paddle.float32 and q.shape[-1] % 2 == 0
        if not (fits and cos.shape[1] == q.shape[1] == k.shape[1] and self._is_from_the_start(position_ids)):
            return self._stock(q, k, cos, sin, position_ids)
        return Rotate.apply(q, *self._table(q, cos, sin)), Rotate.apply(k, *self._table(k, cos, sin))

    def _is_from_the_start(self, position_ids) -> bool:
        """True if every row counts 0, 1, 2, ...; None means just that."""
        if position_ids is not self._position_ids:
            self._position_ids, self._from_the_start = position_ids, _counts_up(position_ids)
        return self._from_the_start

    def _table(self, x, cos, sin):
        shape = tuple(x.shape)
        # A model's cos and sin are a function of the sequence length alone, in every layer the same.
        return self._tables.get(shape, lambda: (*spread(cos, sin, shape), half_rotation(shape[-1])))


def replace(attention: paddle.nn.Layer, rotary: RotaryEmbedding) -> None:
    """Make this one layer (its class is in CLASSES) call `rotary` instead of apply_rotary_pos_emb."""
    forward = type(attention).forward
    seen = {**forward.__globals__, "apply_rotary_pos_emb": rotary}
    rebuilt = FunctionType(forward.__code__, seen, forward.__name__, forward.__defaults__)
    attention.forward = MethodType(rebuilt, attention)


def stock_function(attention_class: type) -> Callable:
    """The apply_rotary_pos_emb that this class of attention layers calls."""
    return attention_class.forward.__globals__["apply_rotary_pos_emb"]


def spread(cos: paddle.Tensor, sin: paddle.Tensor, shape: tuple[int, ...]) -> tuple[paddle.Tensor, ...]:
    """cos and sin [1, s, 1, d] written out to the full shape [b, s, heads, d]."""
    return tuple(table.expand(shape).contiguous() for table in (cos, sin))


def half_rotation(head_dim: int) -> paddle.Tensor:
    """[d, d], so that x @ it is rotate_half(x): (x1, x2) -> (-x2, x1)."""
    half = paddle.eye(head_dim // 2)
    none = paddle.zeros_like(half)
    return paddle.concat([paddle.concat([none, half], axis=1), paddle.concat([-half, none], axis=1)], axis=0)


def _counts_up(position_ids) -> bool:
    if position_ids is None:
        return True
    return bool((position_ids == paddle.arange(position_ids.shape[-1], dtype=position_ids.dtype)).all())


class Rotate(PyLayer):
    """x * cos + rotate_half(x) * sin; x, cos and sin [b, s, heads, d], rotation from `half_rotation`."""

    @staticmethod
    def forward(ctx, x, cos, sin, rotation):
        ctx.save_for_backward(cos, sin, rotation)
        return x * cos + paddle.matmul(x, rotation) * sin

    @staticmethod
    def backward(ctx, grad):
        cos, sin, rotation = ctx.saved_tensor()
        x_grad = grad * cos + paddle.matmul(grad * sin, rotation, transpose_y=True)
        return x_grad, None, None, None

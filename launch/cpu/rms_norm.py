"""RMSNorm for a CPU: sums and broadcasts as products with ones, which Paddle does several times faster.

`x.mean(-1)`, `x * [n, 1]` and `x * [h]` go through Paddle's generic reduction and broadcasting kernels;
matmul goes to MKL, and a product of equal shapes is one vectorized loop.
"""

from types import MethodType

import paddle
from paddle.autograd import PyLayer

# Layers with `weight` [h] and `variance_epsilon` that compute weight * x / sqrt(mean(x^2) + epsilon).
CLASSES = frozenset({"LlamaRMSNorm", "Qwen2RMSNorm", "MistralRMSNorm"})


def is_fused(layer: paddle.nn.Layer) -> bool:
    """Whether this layer calls the fused operator (module fused_ln), which is faster still."""
    return bool(getattr(getattr(layer, "config", None), "use_fused_rms_norm", False))


def replace(layer: paddle.nn.Layer) -> None:
    """Give this one RMSNorm layer (its class is in CLASSES) the fast forward."""
    layer.forward = MethodType(_forward, layer)


def _forward(layer, hidden_states):
    if hidden_states.dtype != paddle.float32 or layer.weight.dtype != paddle.float32:
        return type(layer).forward(layer, hidden_states)
    return RMSNorm.apply(hidden_states, layer.weight, layer.variance_epsilon)


class RMSNorm(PyLayer):
    """weight * x / sqrt(mean(x^2) + epsilon) over the last axis; x [..., h], weight [h], float32."""

    @staticmethod
    def forward(ctx, x, weight, epsilon):
        rows = x.reshape([-1, x.shape[-1]])
        inverse_rms = paddle.rsqrt(_row_mean(rows * rows) + epsilon)
        normed = rows * _across(inverse_rms, rows)
        ctx.save_for_backward(normed, weight, inverse_rms)
        ctx.weight_is_frozen = weight.stop_gradient
        return (normed * _down(weight, rows)).reshape(x.shape)

    @staticmethod
    def backward(ctx, grad):
        normed, weight, inverse_rms = ctx.saved_tensor()
        grad_rows = grad.reshape(normed.shape)
        by_normed = grad_rows * normed
        weight_grad = None
        if not ctx.weight_is_frozen:
            weight_grad = paddle.matmul(paddle.ones([1, normed.shape[0]]), by_normed).reshape(weight.shape)

        # The part of the gradient that runs along x falls away: x / rms(x) does not know the length of x.
        weights = _down(weight, normed)
        along = _across(_row_mean(by_normed * weights), normed)
        x_grad = _across(inverse_rms, normed) * (grad_rows * weights - normed * along)
        return x_grad.reshape(grad.shape), weight_grad


def _row_mean(rows):
    """[n, h] -> [n, 1]."""
    hidden_size = rows.shape[-1]
    return paddle.matmul(rows, paddle.full([hidden_size, 1], 1.0 / hidden_size))


def _across(column, like):
    """[n, 1] -> [n, h] of `like`, the same value in every column."""
    return paddle.matmul(column, paddle.ones([1, like.shape[-1]]))


def _down(weight, like):
    """[h] -> [n, h] of `like`, the same row again and again."""
    return paddle.matmul(paddle.ones([like.shape[0], 1]), weight.reshape([1, -1]))

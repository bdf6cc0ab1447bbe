"""Faster layers for a model that trains on a CPU, put into this one model.

    print(apply(model, compiled_operators()))

Gradients equal stock's to 2e-5 relative; runs are bit-identical from one to the next. A call that a fast layer is
not made for (padding, custom positions, cached keys, another precision, alibi) goes to the stock code
unchanged. Classes and modules are left alone: other models in the process do not notice.

RMSNorm: sums and broadcasts are products with ones. `x.mean(-1)`, `x * [n, 1]` and `x * [h]` go through Paddle's
generic reduction and broadcasting kernels, which are several times slower; matmul goes to MKL, and a product of equal
shapes is one vectorized loop. SwiGLU: the sigmoid comes from tanh (Paddle has a vectorized one) and is kept for the
backward pass. Where the compiled operators are given, they compute attention, rotary embedding and SwiGLU.
"""

from collections.abc import Callable
from functools import partial
from types import MethodType, ModuleType

import paddle
from paddle import _C_ops
from paddle.autograd import PyLayer

from launch.cpu.attention import (
    ROTARY_ATTENTIONS,
    ByShape,
    RotaryEmbedding,
    replace_attention,
    replace_mask,
    replace_rotary,
    stock_rotary,
)


def apply(model: paddle.nn.Layer, compiled: ModuleType | None = None, bfloat16: bool = False) -> str:
    """Put the fast pieces into a paddlenlp model, plain or pipeline. Returns one line that says which.

    compiled: the module with the operators that `make custom-ops` builds; None: the same composed of Paddle's.
    bfloat16: the compiled attention rounds the factors of its products to it.

    LLaMA takes all of them; Qwen2, Qwen3 and Mistral take what they share with it; other families nothing.
    """
    replaced: dict[str, int] = {"RMSNorm": 0, "rotary embedding": 0, "causal attention": 0, "SwiGLU": 0}
    rotaries: dict[type, RotaryEmbedding] = {}
    masks = ByShape()
    for layer in model.sublayers(include_self=True):
        kind = type(layer)
        if not kind.__module__.startswith(("paddlenlp.", "launch.models.")) or _is_replaced(layer):
            continue
        if kind.__name__ in RMS_NORMS and calls_fused_rms_norm(layer):
            replaced.pop("RMSNorm", None)  # neither replaced nor slow
        elif kind.__name__ in RMS_NORMS:
            replace_rms_norm(layer)
            replaced["RMSNorm"] += 1
        if kind.__name__ in ROTARY_ATTENTIONS:
            if kind not in rotaries:
                rotaries[kind] = RotaryEmbedding(stock_rotary(kind), compiled)
            replace_rotary(layer, rotaries[kind])
            replaced["rotary embedding"] += 1
        if kind.__name__ == "LlamaAttention":
            replace_attention(layer, masks, compiled, bfloat16)
            replaced["causal attention"] += 1
        if kind.__name__ == "LlamaModel":
            replace_mask(layer)
        if kind.__name__ == "LlamaMLP" and not layer.fuse_attention_ffn:
            replace_swiglu(layer, compiled.swiglu if compiled else SwiGLU.apply)
            replaced["SwiGLU"] += 1
    return _line(type(model).__name__, replaced, compiled is not None)


def _is_replaced(layer: paddle.nn.Layer) -> bool:
    """Return True where this very layer has been given another forward already, by us or by somebody else."""
    return "forward" in vars(layer) or "_prepare_decoder_attention_mask" in vars(layer)


def _line(model: str, replaced: dict[str, int], is_compiled: bool) -> str:
    fast = [f"{count} x {piece}" for piece, count in replaced.items() if count]
    stock = [piece for piece, count in replaced.items() if not count]
    line = f"cpu_fast: {model}: " + (f"replaced {', '.join(fast)}" if fast else "nothing replaced")
    line += " (compiled)" if fast and is_compiled else ""
    return line + (f"; stock: {', '.join(stock)}" if fast and stock else "")


# Layers with `weight` [h] and `variance_epsilon` that compute weight * x / sqrt(mean(x^2) + epsilon).
RMS_NORMS = frozenset({"LlamaRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm", "MistralRMSNorm"})


def calls_fused_rms_norm(layer: paddle.nn.Layer) -> bool:
    """Return whether this layer calls the fused operator (module fused_ln), which is faster still."""
    return bool(getattr(getattr(layer, "config", None), "use_fused_rms_norm", False))


def replace_for_answers(model: paddle.nn.Layer, compiled: ModuleType | None = None) -> None:
    """Replace RMSNorm, SwiGLU and products of a model that answers, and so saves nothing for a backward pass.

    Args:
        model: Of any family.
        compiled: See apply().
    """
    for layer in model.sublayers():
        kind = type(layer).__name__
        if type(layer) is paddle.nn.Linear and layer.weight.dtype == paddle.float32 and not _is_replaced(layer):
            layer.forward = MethodType(_answering_linear, layer)
        if kind in RMS_NORMS and not calls_fused_rms_norm(layer) and layer.weight.dtype == paddle.float32:
            layer.forward = MethodType(_answering_rms_norm(layer, compiled), layer)
        if kind == "LlamaMLP" and not layer.fuse_attention_ffn:
            replace_swiglu(layer, compiled.swiglu if compiled else _answering_swiglu)


def _answering_linear(layer: paddle.nn.Layer, x):
    # F.linear comes to the same on a CPU, but looks up a flag in each call.
    return _C_ops.linear(x, layer.weight, layer.bias)


def _answering_swiglu(gate, up):
    return paddle.nn.functional.silu(gate) * up


def _answering_rms_norm(layer: paddle.nn.Layer, compiled: ModuleType | None) -> Callable:
    if compiled:
        norm = partial(compiled.rms_norm, weight=layer.weight, epsilon=layer.variance_epsilon)
    else:
        size = layer.weight.shape[0]
        mean, weight = paddle.full([size, 1], 1.0 / size), layer.weight.detach().reshape([1, size])

        def norm(x):
            inverse_rms = paddle.rsqrt(paddle.matmul(x * x, mean) + layer.variance_epsilon)
            return x * paddle.matmul(inverse_rms, weight)

    def forward(layer, hidden_states):
        if hidden_states.dtype != paddle.float32:
            return type(layer).forward(layer, hidden_states)
        return norm(hidden_states)

    return forward


def replace_rms_norm(layer: paddle.nn.Layer) -> None:
    """Give this one RMSNorm layer (its class is in RMS_NORMS) the fast forward."""
    layer.forward = MethodType(_rms_norm_forward, layer)


def _rms_norm_forward(layer, hidden_states):
    if hidden_states.dtype != paddle.float32 or layer.weight.dtype != paddle.float32:
        return type(layer).forward(layer, hidden_states)
    return RMSNorm.apply(hidden_states, layer.weight, layer.variance_epsilon)


class RMSNorm(PyLayer):
    """weight * x / sqrt(mean(x^2) + epsilon) over the last axis; x [..., h], weight [h], float32."""

    @staticmethod
    def forward(ctx, x, weight, epsilon):
        """Compute RMSNorm."""
        rows = x.reshape([-1, x.shape[-1]])
        inverse_rms = paddle.rsqrt(_row_mean(rows * rows) + epsilon)
        normed = rows * _across(inverse_rms, rows)
        ctx.save_for_backward(normed, weight, inverse_rms)
        ctx.weight_is_frozen = weight.stop_gradient
        return (normed * _down(weight, rows)).reshape(x.shape)

    @staticmethod
    def backward(ctx, grad):
        """Compute the gradients of x and weight."""
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
    """Return the mean of each row, [n, h] -> [n, 1]."""
    hidden_size = rows.shape[-1]
    return paddle.matmul(rows, paddle.full([hidden_size, 1], 1.0 / hidden_size))


def _across(column, like):
    """Return a column [n, 1] as [n, h] of `like`, the same value in every column."""
    return paddle.matmul(column, paddle.ones([1, like.shape[-1]]))


def _down(weight, like):
    """Return a weight [h] as [n, h] of `like`, the same row again and again."""
    return paddle.matmul(paddle.ones([like.shape[0], 1]), weight.reshape([1, -1]))


def replace_swiglu(mlp: paddle.nn.Layer, swiglu: Callable) -> None:
    """Give this one LlamaMLP layer (with gate_proj and up_proj apart) a forward with swiglu(gate, up), for float32."""

    def forward(mlp, hidden_states):
        if hidden_states.dtype != paddle.float32:
            return type(mlp).forward(mlp, hidden_states)
        return mlp.down_proj(swiglu(mlp.gate_proj(hidden_states), mlp.up_proj(hidden_states)))

    mlp.forward = MethodType(forward, mlp)


class SwiGLU(PyLayer):
    """gate * sigmoid(gate) * up, for two float32 tensors of one shape.

    sigmoid(x) = (1 + tanh(x / 2)) / 2: right to 6e-8 absolute, so that far below zero it has no correct
    digits left where the true value is under 1e-7 anyhow.
    """

    @staticmethod
    def forward(ctx, gate, up):
        """Compute SwiGLU."""
        sigmoid = paddle.scale(paddle.tanh(gate * 0.5), 0.5, bias=0.5)
        ctx.save_for_backward(gate, up, sigmoid)
        return gate * sigmoid * up

    @staticmethod
    def backward(ctx, grad):
        """Compute the gradients of gate and up."""
        gate, up, sigmoid = ctx.saved_tensor()
        silu = gate * sigmoid
        return grad * up * (sigmoid + silu - silu * sigmoid), grad * silu

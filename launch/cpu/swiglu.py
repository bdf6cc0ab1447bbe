"""SwiGLU for a CPU: the sigmoid from tanh (Paddle has a vectorized one), kept for the backward pass."""

from types import MethodType

import paddle
from paddle.autograd import PyLayer


def replace(mlp: paddle.nn.Layer) -> None:
    """Give this one LlamaMLP layer (with gate_proj and up_proj apart) the fast forward."""
    mlp.forward = MethodType(_forward, mlp)


def _forward(mlp, hidden_states):
    if hidden_states.dtype != paddle.float32:
        return type(mlp).forward(mlp, hidden_states)
    return mlp.down_proj(SwiGLU.apply(mlp.gate_proj(hidden_states), mlp.up_proj(hidden_states)))


class SwiGLU(PyLayer):
    """gate * sigmoid(gate) * up, for two float32 tensors of one shape.

    sigmoid(x) = (1 + tanh(x / 2)) / 2: right to 6e-8 absolute, so that far below zero it has no correct
    digits left where the true value is under 1e-7 anyhow.
    """

    @staticmethod
    def forward(ctx, gate, up):
        sigmoid = paddle.scale(paddle.tanh(gate * 0.5), 0.5, bias=0.5)
        ctx.save_for_backward(gate, up, sigmoid)
        return gate * sigmoid * up

    @staticmethod
    def backward(ctx, grad):
        gate, up, sigmoid = ctx.saved_tensor()
        silu = gate * sigmoid
        return grad * up * (sigmoid + silu - silu * sigmoid), grad * silu

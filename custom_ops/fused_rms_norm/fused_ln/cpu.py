"""Operators of a training step on a CPU, float32, forward and backward: for launch/cpu, which checks what they take."""

import paddle

import fused_ln  # noqa: F401  # loads the library

run = paddle._C_ops._run_custom_op  # pyright: ignore[reportAttributeAccessIssue]  # made at import, in no stub

HEAD_SIZES = 16  # a head of attention is a multiple of it


def causal_attention(q, k, v, scale):
    """softmax(scale * q k^T, each position seeing itself and what is before it) v.

    q, k, v [b, s, heads, d], float32 on the CPU, d a multiple of HEAD_SIZES -> [b, s, heads, d]. The backward pass
    makes the weights anew: nothing of size [s, s] is kept.
    """
    return run("cpu_causal_attention", q, k, v, float(scale))[0]


def rotary_embedding(x, cos, sin):
    """x * cos + rotate_half(x) * sin; x [b, s, heads, d], cos and sin [1, s, 1, d] -> [b, s, heads, d]."""
    return run("cpu_rotary_embedding", x, cos, sin)[0]


def swiglu(gate, up):
    """gate * sigmoid(gate) * up, for two tensors of one shape."""
    return run("cpu_swiglu", gate, up)[0]

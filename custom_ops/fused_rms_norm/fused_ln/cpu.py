"""Operators of a training step on a CPU, float32, forward and backward, and attention of a server, forward only.

For launch/cpu and launch/generation, which check what they take.
"""

import paddle

import fused_ln  # loads the library

run = paddle._C_ops._run_custom_op  # pyright: ignore[reportAttributeAccessIssue]  # made at import, in no stub

HEAD_SIZES = 16  # a head of attention is a multiple of it


def causal_attention(q, k, v, scale, bfloat16=False):
    """Return softmax(scale * q k^T) v, where each position sees itself and the positions before it.

    q, k, v [b, s, heads, d], float32 on the CPU, d a multiple of HEAD_SIZES -> [b, s, heads, d]. The backward pass
    recomputes the weights: nothing of size [s, s] is saved. bfloat16: the factors of products are rounded to it, where
    the processor has AVX512-bf16; sums and softmax stay float32.
    """
    return run("cpu_causal_attention", q, k, v, float(scale), bool(bfloat16))[0]


def packed_attention(q, k, v, keys, values, texts, slopes, scale):
    """Return the attention of many texts whose tokens lie in one row: each token sees itself and its text before it.

    q [1, tokens, heads * queries, d], k and v [1, tokens, heads, d], d a multiple of HEAD_SIZES -> as q. keys, values:
    a tensor for each group of texts, [places * heads * capacity, d]; the row's keys and values are written to their
    places. texts int64 [n, 6]: for each its group, its place in the group, the group's capacity, its first token in the
    row, its tokens in the row, and its tokens before them. slopes [heads * queries]: slope * p is added to the score of
    the token at position p of its text. Nothing is saved for a backward pass.
    """
    return run("cpu_packed_attention", q, k, v, keys, values, texts, slopes, float(scale))[0]


def rotary_embedding(x, cos, sin):
    """Return x * cos + rotate_half(x) * sin; x [b, s, heads, d], cos and sin [1, s, 1, d] -> [b, s, heads, d]."""
    return run("cpu_rotary_embedding", x, cos, sin)[0]


def rms_norm(x, weight, epsilon):
    """Return x / sqrt(mean(x^2) + epsilon) * weight over the last axis; x [..., h], weight [h]."""
    return fused_ln.fused_rms_norm(x, weight, epsilon)[0]


def swiglu(gate, up):
    """Return gate * sigmoid(gate) * up, for two tensors of one shape."""
    return run("cpu_swiglu", gate, up)[0]


def bfloat16(x):
    """Return x rounded to bfloat16, a constant to gradients."""
    return run("cpu_bfloat16", x)[0]


def product(left, right, bias=None, transposed_left=False, transposed_right=False):
    """Return left @ right + bias in float32, of factors that are rounded to bfloat16; a constant to gradients.

    left [..., k], right [k, n] or, of a gradient, [..., n]: float32 or bfloat16 on the CPU, all axes but the last are
    rows; bias [n]: float32 -> [..., n], or of a transposed left [k, n].
    """
    return run("cpu_product", left, right, bias, transposed_left, transposed_right)[0]


def pack(weight, transposed=False):
    """Return a weight [k, n], transposed [n, k], in bfloat16 and in the order of `packed_product`."""
    return run("cpu_pack", weight, transposed)[0]


def packed_product(left, packed, columns, bias=None):
    """Return left [..., k] @ weight [k, columns] + bias in float32; packed: by `pack`."""
    return run("cpu_packed_product", left, packed, bias, columns)[0]


def products_obstacle() -> str:
    """Return why the products above cannot be computed, such as an oneDNN of another version, or ""."""
    try:
        product(paddle.ones([1, 32]), paddle.ones([32, 32]))
        return ""
    except (OSError, RuntimeError) as error:
        return str(error).splitlines()[0]  # the place in the source comes next

"""Kernels are tried at the start of a run: flash attention and fused RMSNorm, against the same in NumPy.

On a card that a kernel was not made for it may return garbage without an error: the loss then falls to 0.00x. A library
that was built for another Paddle, processor or card may fail to load, fail when called, or be wrong. So each rank
computes small random inputs forward and backward by the function that the model will call, with the dtypes and sizes
that choose the kernel. It costs a second or two and none of Paddle's random numbers.

    fault = attention_fault(flash_attention_of(LLAMA), Heads(32, 32, 128), "bfloat16", shapes(prefix=128))
"""

import importlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle.nn.attention.sdpa import SDPBackend, _get_enabled_backends
from paddlenlp.transformers.llama import fusion_ops

from launch.families.family import Family
from launch.families.parameters import attention_heads, head_size, key_value_heads
from launch.models.alibi_columns import slopes_of
from launch.switches.flash_attention import OWN_KERNEL
from launch.switches.switch import SwitchCase
from launch.upstream import correct

# ---- flash attention

BATCH = 2
LENGTHS = (192, 287)  # a block of the kernels and a half; an odd number, as batches of samples often have
DOCUMENT = 75  # tokens of a sample in packed rows: no multiple of a block's
PADDED = 40  # positions before the second sample where masks are tried

# The largest relative error of one head's matrix that rounding explains: 4 units of the dtype's last place (2^-8 for
# bfloat16's 8 bits, 2^-11 for float16's 11). Kernels round the probabilities, their gradients and the results: that
# alone gives 0.5 to 0.9 units, whatever the number and size of heads (measured in NumPy; a test does it for one). One
# position of garbage in a head gives 1 / sqrt(287) = 0.06, a mask, scale or block that is wrong far more.
ATTENTION_TOLERANCE = {"bfloat16": 4 * 2.0**-8, "float16": 4 * 2.0**-11}

# Corrections of the function that LLaMA and Qwen2 call; Bloom's attention is made of the same parts.
FUSED = ("llama_flash_masks", "llama_flash_alibi")
# attend(query [b, queries, heads, d], key, value [b, keys, key_value_heads, d], mask) -> as query. mask: [b, 1,
# queries, keys], added to the scores; int32 [b, keys], the ends of the samples of a packed row; or None: causal, the
# last query sees all keys.
Attend = Callable[[paddle.Tensor, paddle.Tensor, paddle.Tensor, paddle.Tensor | None], paddle.Tensor]


@dataclass(frozen=True)
class Heads:
    """Attention heads of one rank: its share of the model's under tensor parallel.

    Attributes:
        size: Elements of a head.
        alibi: Whether a bias by position is added to the scores.
    """

    query: int
    key_value: int
    size: int
    alibi: bool = False

    @property
    def slopes(self) -> tuple[float, ...]:
        """The slopes of ALiBi, one a head, of a model that has no more heads."""
        return slopes_of(self.query) if self.alibi else (0.0,) * self.query


def heads_of(case: SwitchCase, alibi: bool) -> Heads:
    """Return the heads of one rank; fewer keys and values than ranks are whole on each."""
    degree, config = case.tensor_parallel_degree, case.config
    query, key_value = attention_heads(config), key_value_heads(config)
    own = key_value // degree if key_value % degree == 0 else key_value
    return Heads(query // degree, own, head_size(config), alibi)


@dataclass(frozen=True)
class Shape:
    """One attention that is tried, causal.

    Attributes:
        length: Queries, and their keys.
        earlier: Keys before the first query's, as a prefix has them.
        padding: Positions that the second sample begins with and no token sees, which takes a mask.
        packed: Tokens of each sample of a row, the last of which may be shorter, for FlashMask; 0: one sample a
            row.
    """

    length: int
    earlier: int = 0
    padding: int = 0
    packed: int = 0

    def sample(self) -> np.ndarray:
        """Return [length]: the number of each token's sample within its row."""
        return np.arange(self.length) // (self.packed or self.length)

    def ends(self) -> np.ndarray:
        """Return int32 [batch, length]: the end of each token's sample (launch/training/batches.py)."""
        ends = np.minimum((self.sample() + 1) * (self.packed or self.length), self.length)
        return np.broadcast_to(ends.astype("int32"), (BATCH, self.length))

    def seen(self) -> np.ndarray:
        """Return bool [batch, length]: False for padding."""
        seen = np.ones((BATCH, self.length), bool)
        seen[-1, : self.padding] = False
        return seen

    def visible(self) -> np.ndarray:
        """Return bool [batch, 1, queries, keys]: whether a query sees a key of a token that is not later.

        Padding sees itself and earlier tokens.
        """
        causal = np.tril(self.sample()[:, None] == self.sample())
        own = ((causal & self.seen()[:, None, :]) | np.eye(self.length, dtype=bool))[:, None]
        return np.concatenate([np.ones((BATCH, 1, self.length, self.earlier), bool), own], axis=-1)


def shapes(masks: bool = False, prefix: int = 0) -> list[Shape]:
    """Return the shapes of a run's attention.

    Args:
        masks: Of padded or packed samples.
        prefix: Its number of tokens.
    """
    paddings = (0, PADDED) if masks else (0,)
    return [Shape(length, prefix, padding) for padding in paddings for length in LENGTHS]


def packed_shapes() -> list[Shape]:
    """Return packed rows, as FlashMask is to see them."""
    return [Shape(length, packed=DOCUMENT) for length in LENGTHS]


def flash_attention_of(family: Family) -> Attend:
    """Return the function by which paddlenlp's models of a family compute flash attention, its faults corrected."""
    correct(family.corrections)
    if not family.always_masked:
        correct(FUSED)

        def attend_fused(query, key, value, mask):
            config = SimpleNamespace(
                context_parallel_degree=1,
                alibi=family.alibi,
                num_attention_heads=query.shape[2],
                tensor_parallel_degree=1,
                tensor_parallel_rank=0,
            )
            ends = mask if mask is not None and mask.dtype == paddle.int32 else None
            dense = mask if ends is None else None
            result: Any = fusion_ops.fusion_flash_attention(query, config, key, value, dense, False, None, ends)
            return result.reshape(query.shape)

        return attend_fused

    def attend(query, key, value, mask):
        if mask is None:
            visible = Shape(query.shape[1], key.shape[1] - query.shape[1]).visible()
            mask = _additive(visible, query.dtype)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=False)

    return attend


def kernel_missing(compute_capability: tuple[int, int]) -> str:
    """Return what Paddle lacks for flash attention on a card, "" where it lacks nothing.

    Without it Paddle computes exact attention silently.
    """
    flash = compute_capability >= OWN_KERNEL
    needed = SDPBackend.FLASH_ATTENTION if flash else SDPBackend.EFFICIENT_ATTENTION
    if needed in _get_enabled_backends():
        return ""
    return f"this build of Paddle has no {'flash' if flash else 'memory efficient'} attention"


def version_3_missing() -> str:
    """Return what Paddle lacks for flash attention 3, "" where it lacks nothing: GPU builds have it as a library."""
    library = Path(paddle.__file__).parent / "libs" / "libflashattnv3.so"
    return "" if library.exists() else f"this build of Paddle has no {library.name}"


def attention_fault(attend: Attend, heads: Heads, dtype: str, shapes: list[Shape]) -> str:
    """Return how `attend` differs from exact attention on this device; "" where it agrees in all shapes.

    Args:
        attend: The function.
        heads: Of the model.
        dtype: "float16" or "bfloat16".
        shapes: To try.
    """
    for shape in shapes:
        try:
            found = attention_errors(attend, heads, dtype, shape)
        except Exception as error:  # Paddle raises many kinds for a kernel that refuses
            return f"it fails here: {summary(error)}"
        for name, error in found.items():
            if not error <= ATTENTION_TOLERANCE[dtype]:  # also where it is not a number
                return (
                    f"its {name} is off by {error:.2g} of exact attention's, allowed {ATTENTION_TOLERANCE[dtype]:.2g}"
                    f" ({_describe(shape)})"
                )
    return ""


def attention_errors(attend: Attend, heads: Heads, dtype: str, shape: Shape) -> dict[str, float]:
    """Return the largest relative errors of the result and the three gradients against exact attention, by their names.

    They are relative to the norm of one head's matrix in one sample, of which the worst counts. Raises any exception of
    `attend`.
    """
    query, key, value, upstream = _inputs(heads, shape, dtype)
    if (
        shape.length % 2 and not shape.earlier
    ):  # parts of one tensor, as layers with one product for all three have them
        query, key, value = paddle.concat([query, key, value], axis=2).split(
            [heads.query, *2 * [heads.key_value]], axis=2
        )
    mask = _additive(shape.visible(), query.dtype) if shape.padding else None
    mask = paddle.to_tensor(shape.ends()) if shape.packed else mask
    found = with_gradients(lambda q, k, v: attend(q, k, v, mask), (query, key, value), upstream)
    found[0] *= shape.seen()[:, :, None, None]
    expected = exact_attention(*map(array_of, (query, key, value, upstream)), shape=shape, slopes=heads.slopes)
    names = ("result", "query gradient", "key gradient", "value gradient")
    errors = {}
    for name, one, right in zip(names, found, expected, strict=True):  # of a head's matrix, relative to that matrix
        relative = np.linalg.norm(one - right, axis=(1, 3)) / np.linalg.norm(right, axis=(1, 3))
        errors[name] = float(relative.max())
    return errors


def _describe(shape: Shape) -> str:
    words = [f"{shape.length} tokens"]
    if shape.earlier:
        words.append(f"{shape.earlier} keys of a prefix")
    if shape.packed:
        words.append(f"samples of {shape.packed} by FlashMask")
    return ", ".join(words + ["masked"] if shape.padding else words)


def _inputs(heads: Heads, shape: Shape, dtype: str) -> list[paddle.Tensor]:
    """Return random query, key and value, and a random gradient of the result, which is 0 for padding."""
    generator = np.random.default_rng(0)
    queries, keys = shape.length, shape.earlier + shape.length
    sizes = ((queries, heads.query), (keys, heads.key_value), (keys, heads.key_value), (queries, heads.query))
    arrays = [generator.standard_normal((BATCH, *size, heads.size), dtype="float32") for size in sizes]
    arrays[3] *= shape.seen()[:, :, None, None]
    return [paddle.to_tensor(array).astype(getattr(paddle, dtype)) for array in arrays]


def _additive(visible: np.ndarray, dtype: paddle.dtype) -> paddle.Tensor:
    """Return the mask that is added to scores: 0, or the least value of the dtype where a query does not see a key."""
    return paddle.to_tensor(np.where(visible, 0.0, float(paddle.finfo(dtype).min)).astype("float32")).astype(dtype)


def exact_attention(query, key, value, upstream, shape: Shape, slopes: Sequence[float]) -> Iterator[np.ndarray]:
    """Yield causal attention, 0 for padding, and its gradients for the gradient `upstream` of the result, in float32.

    query, upstream [b, queries, heads, d], key, value [b, keys, key_value_heads, d]; slopes: of ALiBi, one a head.
    """
    groups = query.shape[2] // key.shape[2]
    scale = np.float32(1 / math.sqrt(query.shape[3]))
    q, dout = _heads_first(query), _heads_first(upstream)
    k, v = (np.repeat(_heads_first(array), groups, axis=1) for array in (key, value))
    bias = np.array(slopes, "float32")[:, None, None] * np.arange(k.shape[2], dtype="float32")
    scores = np.where(shape.visible(), q @ _transposed(k) * scale + bias, np.float32(-1e30))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    result = weights @ v
    weights_grad = dout @ _transposed(v)
    scores_grad = weights * (weights_grad - (weights_grad * weights).sum(-1, keepdims=True)) * scale
    yield _heads_first(result) * shape.seen()[:, :, None, None]
    yield _heads_first(scores_grad @ k)
    yield _heads_first(_summed(_transposed(scores_grad) @ q, groups))
    yield _heads_first(_summed(_transposed(weights) @ dout, groups))


def _heads_first(array: np.ndarray) -> np.ndarray:
    """Return [b, s, heads, d] as [b, heads, s, d], or back."""
    return array.transpose(0, 2, 1, 3)


def _transposed(array: np.ndarray) -> np.ndarray:
    return array.swapaxes(-1, -2)


def _summed(array: np.ndarray, groups: int) -> np.ndarray:
    """Return [b, heads, s, d] as [b, key_value_heads, s, d]: the sum over the query heads that share one."""
    batch, heads, length, size = array.shape
    return array.reshape(batch, heads // groups, groups, length, size).sum(2)


# ---- fused RMSNorm

ROWS, EPSILON = (3, 107), 1e-6  # as many dimensions as a training step's batch has, and no multiple of a block's rows
HEAD_ROWS = (2, 32_800)  # of a norm of each head: more rows than 65,535, the most blocks that a grid has in y and z
# Relative to the largest element: four roundings to the dtype; paddlenlp's composed operators, which `make certify`
# tries, make two in a row (measured: 0.0074 in bfloat16). Wrong factors give 0.1 and more.
RMS_NORM_TOLERANCE = {"float32": 1e-5, "bfloat16": 2.0**-6, "float16": 2.0**-9}
# (x [..., h], weight [h], epsilon) -> y [..., h] in the weight's dtype, and more
RMSNorm = Callable[[paddle.Tensor, paddle.Tensor, float], tuple]


def fused_ln_rms_norm(x: paddle.Tensor, weight: paddle.Tensor, epsilon: float) -> tuple:
    """Compute RMSNorm as paddlenlp calls it; loads the module first."""
    return importlib.import_module("fused_ln").fused_rms_norm(x, weight, epsilon)


def paddle_rms_norm(x: paddle.Tensor, weight: paddle.Tensor, epsilon: float = 1e-6) -> tuple:
    """Compute RMSNorm by Paddle's own operator, called as fused_ln's.

    It returns y [..., h] in the weight's dtype, and 1 / rms in float32.
    paddle.nn.functional.rms_norm of Paddle 3.3.1 has kernels for cards, forward and backward, and none for CPUs
    (paddle/phi/kernels/gpu/rms_norm_cuda_kernel.h). It requires x and weight in one dtype and keeps sums in float32.
    Offsets there are 32 bits: more than 2^32 elements at once would be wrong.
    """
    if x.dtype != weight.dtype:
        x = x.astype(weight.dtype)
    with paddle.amp.auto_cast(False):  # or it would choose the dtype
        return paddle.nn.functional.rms_norm(x, [x.shape[-1]], weight, epsilon)


def use_paddle_rms_norm() -> None:
    """Let paddlenlp's `import fused_ln` find Paddle's own operator, in this process."""
    module = ModuleType("fused_ln", "Paddle's own RMSNorm in the place of fused_ln.")
    vars(module)["fused_rms_norm"] = paddle_rms_norm
    sys.modules["fused_ln"] = module


def rms_norm_fault(
    name: str,
    rms_norm: RMSNorm,
    hidden: int = 192,
    dtypes: tuple[str, str] = ("float32", "float32"),
    rows: tuple[int, int] = ROWS,
) -> str:
    """Return what is wrong with an RMSNorm on this device, beginning with its name; "" where nothing is.

    Args:
        name: Of the operator.
        rms_norm: The function.
        hidden: Elements of a row.
        dtypes: Of x, and of the weight, the result and its gradient.
        rows: Of x, which is a part of a tensor with longer ones.
    """
    generator = np.random.default_rng(0)
    x_dtype, weight_dtype = dtypes
    x, weight, upstream = (
        paddle.to_tensor(array.astype("float32")).astype(getattr(paddle, dtype))
        for array, dtype in (
            (generator.normal(size=(*rows, hidden + 8)), x_dtype),
            (generator.normal(1, 0.1, hidden), weight_dtype),
            (generator.normal(size=(*rows, hidden)), weight_dtype),
        )
    )
    x = x[..., :hidden]
    try:
        found = with_gradients(lambda x, weight: rms_norm(x, weight, EPSILON)[0], (x, weight), upstream)
    except Exception as error:  # loading a library may fail in any way, and Paddle raises half a dozen kinds
        return f"{name} fails here: {type(error).__name__}: {summary(error)}"
    expected = exact_rms_norm(*(array_of(tensor).astype("float64") for tensor in (x, weight, upstream)))
    parts = (("result", weight_dtype), ("gradient", x_dtype), ("weight's gradient", weight_dtype))
    for (part, dtype), mine, exact in zip(parts, found, expected, strict=True):
        error = np.abs(mine - exact).max() / np.abs(exact).max()
        if not error <= RMS_NORM_TOLERANCE[dtype]:  # also where it is not a number
            where = "" if rows == ROWS else f" ({math.prod(rows):,} rows of {hidden})"
            return f"{name}'s {part} is off by {error:.2g}, allowed {RMS_NORM_TOLERANCE[dtype]:.0e}{where}"
    return ""


def exact_rms_norm(x: np.ndarray, weight: np.ndarray, upstream: np.ndarray) -> list[np.ndarray]:
    """Return y, and the gradients of x and weight for the gradient `upstream` of y, in float64."""
    inverse_rms = 1 / np.sqrt(np.square(x).mean(-1, keepdims=True) + EPSILON)
    normed, weighted = x * inverse_rms, upstream * weight
    x_grad = inverse_rms * (weighted - normed * (weighted * normed).mean(-1, keepdims=True))
    return [normed * weight, x_grad, (upstream * normed).sum((0, 1))]


# ---- both


def with_gradients(function: Callable, inputs: Sequence[paddle.Tensor], upstream: paddle.Tensor) -> list[np.ndarray]:
    """Return the result of a function, and the gradients of its inputs for `upstream`, the gradient of the result."""
    inputs = [tensor.detach() for tensor in inputs]
    for tensor in inputs:
        tensor.stop_gradient = False
    result = function(*inputs)
    return [array_of(tensor) for tensor in (result, *paddle.grad(result, inputs, grad_outputs=upstream))]


def array_of(tensor: paddle.Tensor) -> np.ndarray:
    """Return a tensor as a float32 array."""
    return tensor.astype("float32").numpy()


def summary(error: Exception) -> str:
    """Return Paddle's message below its own stack trace."""
    return " ".join(str(error).rpartition("Error Message Summary:")[2].strip(" -\n").split())[:200]

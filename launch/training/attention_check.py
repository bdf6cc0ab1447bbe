"""Is flash attention right on this card? Compared at start with exact attention on small random inputs.

On a card that a kernel was not made for it may return garbage without an error: the loss then falls to 0.00x. So
before training each rank computes some small attentions forward and backward by the function that the model will
call, and the same in NumPy, in float32 from the same inputs. It costs a second or two and no random numbers of
Paddle's.

    found = disagreement(as_paddlenlp_calls_it("llama"), Heads(32, 32, 128), "bfloat16", shapes(prefix=128))
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle.nn.attention.sdpa import SDPBackend, _get_enabled_backends
from paddlenlp.transformers.llama import fusion_ops

from launch.devices.flash_attention import OWN_KERNEL
from launch.families.registry import family_of
from launch.upstream import correct

BATCH = 2
LENGTHS = (192, 287)  # a block of the kernels and a half; an odd number, as batches of samples often have
PADDED = 40  # positions before the second sample where masks are tried

# The largest relative error of one head's matrix that rounding explains: 4 units of the dtype's last place (2^-8 for
# bfloat16's 8 bits, 2^-11 for float16's 11). Kernels round the probabilities, their gradients and the results: that
# alone gives 0.5 to 0.9 units, whatever the number and size of heads (measured in NumPy; a test does it for one). One
# position of garbage in a head gives 1 / sqrt(287) = 0.06, a mask, scale or block that is wrong far more.
TOLERANCE = {"bfloat16": 4 * 2.0**-8, "float16": 4 * 2.0**-11}

# attend(query [b, queries, heads, d], key, value [b, keys, key_value_heads, d], mask) -> as query. mask: [b, 1,
# queries, keys], added to the scores, or None: causal, the last query sees all keys.
Attend = Callable[[paddle.Tensor, paddle.Tensor, paddle.Tensor, paddle.Tensor | None], paddle.Tensor]


@dataclass(frozen=True)
class Heads:
    """Attention heads of one rank: its share of the model's under tensor parallel. size: numbers in a head."""

    query: int
    key_value: int
    size: int


@dataclass(frozen=True)
class Shape:
    """One attention that is tried, causal.

    length:  queries, and their keys
    earlier: keys before the first query's, as a prefix has them
    padding: positions that the second sample begins with and no token sees, which takes a mask
    """

    length: int
    earlier: int = 0
    padding: int = 0

    def seen(self) -> np.ndarray:
        """bool [batch, length]: False for padding."""
        seen = np.ones((BATCH, self.length), bool)
        seen[-1, : self.padding] = False
        return seen

    def visible(self) -> np.ndarray:
        """bool [batch, 1, queries, keys]: whether a query sees a key: of a token, not later. Padding sees itself alone,
        and what is earlier."""
        causal = np.tril(np.ones((self.length, self.length), bool))
        own = ((causal & self.seen()[:, None, :]) | np.eye(self.length, dtype=bool))[:, None]
        return np.concatenate([np.ones((BATCH, 1, self.length, self.earlier), bool), own], axis=-1)


def shapes(masks: bool = False, prefix: int = 0) -> list[Shape]:
    """What a run's attention will look like. masks: of padded or packed samples. prefix: its number of tokens."""
    paddings = (0, PADDED) if masks else (0,)
    return [Shape(length, prefix, padding) for padding in paddings for length in LENGTHS]


def as_paddlenlp_calls_it(model_type: str) -> Attend:
    """The function by which a model of paddlenlp computes flash attention, its faults corrected."""
    correct(family_of(model_type).corrections)
    if model_type in ("llama", "qwen2"):
        config = SimpleNamespace(context_parallel_degree=1)

        def attend(query, key, value, mask):
            return fusion_ops.fusion_flash_attention(query, config, key, value, mask, False).reshape(query.shape)

        return attend

    def attend(query, key, value, mask):  # the others always make a mask
        if mask is None:
            visible = Shape(query.shape[1], key.shape[1] - query.shape[1]).visible()
            mask = _additive(visible, query.dtype)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=False)

    return attend


def kernel_missing(compute_capability: tuple[int, int]) -> str:
    """What Paddle lacks for flash attention on a card, "" where it has it: then it computes exact attention
    silently."""
    flash = compute_capability >= OWN_KERNEL
    needed = SDPBackend.FLASH_ATTENTION if flash else SDPBackend.EFFICIENT_ATTENTION
    if needed in _get_enabled_backends():
        return ""
    return f"this build of Paddle has no {'flash' if flash else 'memory efficient'} attention"


def disagreement(attend: Attend, heads: Heads, dtype: str, shapes: list[Shape]) -> str:
    """How `attend` differs from exact attention on this device, in words; "" where it agrees in all shapes.

    dtype: "float16" or "bfloat16".
    """
    for shape in shapes:
        try:
            found = errors(attend, heads, dtype, shape)
        except Exception as error:  # Paddle raises many kinds for a kernel that refuses
            return f"it fails here: {_summary(error)}"
        for name, error in found.items():
            if not error <= TOLERANCE[dtype]:  # also where it is not a number
                return (
                    f"its {name} is off by {error:.2g} of exact attention's, allowed {TOLERANCE[dtype]:.2g}"
                    f" ({_describe(shape)})"
                )
    return ""


def errors(attend: Attend, heads: Heads, dtype: str, shape: Shape) -> dict[str, float]:
    """The largest relative errors of the result and the three gradients against exact attention, by their names.

    Relative to the norm of one head's matrix in one sample, of which the worst counts. What `attend` raises goes on.
    """
    given = _inputs(heads, shape, dtype)
    found = _with_gradients(attend, given, shape)
    expected = exact_attention(*map(_array, given), shape)
    names = ("result", "query gradient", "key gradient", "value gradient")
    return {name: _largest_relative_error(*pair) for name, *pair in zip(names, found, expected, strict=True)}


def _describe(shape: Shape) -> str:
    words = [f"{shape.length} tokens"]
    if shape.earlier:
        words.append(f"{shape.earlier} keys of a prefix")
    return ", ".join(words + ["masked"] if shape.padding else words)


def _inputs(heads: Heads, shape: Shape, dtype: str) -> list[paddle.Tensor]:
    """Random query, key and value, and a random gradient of the result, which is 0 for padding."""
    numbers = np.random.default_rng(0)
    queries, keys = shape.length, shape.earlier + shape.length
    sizes = ((queries, heads.query), (keys, heads.key_value), (keys, heads.key_value), (queries, heads.query))
    arrays = [numbers.standard_normal((BATCH, *size, heads.size), dtype="float32") for size in sizes]
    arrays[3] *= shape.seen()[:, :, None, None]
    return [paddle.to_tensor(array).astype(dtype) for array in arrays]


def _with_gradients(attend: Attend, given: list, shape: Shape) -> list[np.ndarray]:
    """The result, 0 for padding, and the gradients of query, key and value, by Paddle."""
    query, key, value, upstream = (tensor.detach() for tensor in given)
    for tensor in (query, key, value):
        tensor.stop_gradient = False
    mask = _additive(shape.visible(), query.dtype) if shape.padding else None
    result = attend(query, key, value, mask)
    gradients = paddle.grad(result, [query, key, value], grad_outputs=upstream)
    return [_array(result) * shape.seen()[:, :, None, None], *map(_array, gradients)]


def _additive(visible: np.ndarray, dtype: paddle.dtype) -> paddle.Tensor:
    """The mask that is added to scores: 0, or the least number of the dtype where a query does not see a key."""
    return paddle.to_tensor(np.where(visible, 0.0, float(paddle.finfo(dtype).min)).astype("float32")).astype(dtype)


def exact_attention(query, key, value, upstream, shape: Shape) -> Iterator[np.ndarray]:
    """Causal attention, 0 for padding, and its gradients for the gradient `upstream` of the result, in float32.

    query, upstream [b, queries, heads, d], key, value [b, keys, key_value_heads, d].
    """
    groups = query.shape[2] // key.shape[2]
    scale = np.float32(1 / math.sqrt(query.shape[3]))
    q, dout = _heads_first(query), _heads_first(upstream)
    k, v = (np.repeat(_heads_first(one), groups, axis=1) for one in (key, value))
    scores = np.where(shape.visible(), q @ _transposed(k) * scale, np.float32(-1e30))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    result = weights @ v
    of_weights = dout @ _transposed(v)
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdims=True)) * scale
    yield _heads_first(result) * shape.seen()[:, :, None, None]
    yield _heads_first(of_scores @ k)
    yield _heads_first(_summed(_transposed(of_scores) @ q, groups))
    yield _heads_first(_summed(_transposed(weights) @ dout, groups))


def _largest_relative_error(found: np.ndarray, right: np.ndarray) -> float:
    """The largest error of a head's matrix in a sample, relative to that matrix; both [b, s, heads, d]."""
    return float((np.linalg.norm(found - right, axis=(1, 3)) / np.linalg.norm(right, axis=(1, 3))).max())


def _summary(error: Exception) -> str:
    """What Paddle puts below its own stack trace."""
    return " ".join(str(error).rpartition("Error Message Summary:")[2].strip(" -\n").split())[:200]


def _array(tensor: paddle.Tensor) -> np.ndarray:
    return tensor.astype("float32").numpy()


def _heads_first(array: np.ndarray) -> np.ndarray:
    """[b, s, heads, d] to [b, heads, s, d], or back."""
    return array.transpose(0, 2, 1, 3)


def _transposed(array: np.ndarray) -> np.ndarray:
    return array.swapaxes(-1, -2)


def _summed(array: np.ndarray, groups: int) -> np.ndarray:
    """[b, heads, s, d] to [b, key_value_heads, s, d]: the sum over the query heads that share one."""
    batch, heads, length, size = array.shape
    return array.reshape(batch, heads // groups, groups, length, size).sum(2)

"""Is flash attention right on this card? Compared at start with exact attention on a small random input.

On a card that a kernel was not made for it may return garbage without an error: the loss then falls to 0.00x. So
before training each rank computes one small attention forward and backward by the function that the model will
call, and the same in NumPy, in float32 from the same inputs. It costs a fraction of a second and no random numbers
of Paddle's.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import paddle
import paddle.nn.functional as F

BATCH = 2
LENGTH = 192  # one block of the kernels and a half
PADDED = 40  # positions before the second sample where the mask is dense

# The largest relative error of one head's matrix that rounding explains: 4 units of the dtype's last place (2^-8 for
# bfloat16's 8 bits, 2^-11 for float16's 11). Kernels round the probabilities, their gradients and the results: that
# alone gives 0.5 to 0.9 units, whatever the number and size of heads (measured in NumPy; a test does it for one). One
# position of garbage in a head gives 1 / sqrt(LENGTH) = 0.07, a mask, scale or block that is wrong far more.
TOLERANCE = {"bfloat16": 4 * 2.0**-8, "float16": 4 * 2.0**-11}

# attend(query [b, s, heads, d], key, value [b, s, key_value_heads, d], mask [b, 1, s, s] or None: causal)
# -> [b, s, heads, d]. A mask is added to the scores.
Attend = Callable[[paddle.Tensor, paddle.Tensor, paddle.Tensor, paddle.Tensor | None], paddle.Tensor]


@dataclass(frozen=True)
class Heads:
    """Attention heads of one rank: its share of the model's under tensor parallel. size: numbers in a head."""

    query: int
    key_value: int
    size: int


def as_paddlenlp_calls_it(model_type: str) -> Attend:
    """The function by which a model of paddlenlp computes flash attention."""
    # transformers/llama/fusion_ops.py, fusion_flash_attention, which qwen2 calls, too; the others give one or the other
    causal_beside_mask = model_type in ("llama", "qwen2")

    def attend(query, key, value, mask):
        causal = mask is None or causal_beside_mask
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)

    return attend


def disagreement(attend: Attend, heads: Heads, dtype: str, mask: str = "causal") -> str:
    """How `attend` differs from exact attention on this device, in words; "" where it agrees.

    dtype: "float16" or "bfloat16". mask: "dense" tries a padded batch, too.
    """
    found = _disagreement(attend, heads, dtype, padding=0)
    if not found and mask == "dense":
        found = _disagreement(attend, heads, dtype, padding=PADDED)
    return found


def _disagreement(attend: Attend, heads: Heads, dtype: str, padding: int) -> str:
    seen = np.ones((BATCH, LENGTH), bool)
    seen[-1, :padding] = False
    given = _inputs(heads, seen, dtype)
    try:
        found = _with_gradients(attend, given, seen, dtype)
    except (RuntimeError, ValueError, OSError, SystemError) as error:  # what Paddle raises for a kernel that refuses
        return f"it fails here: {_summary(error)}"
    expected = exact_attention(*map(_array, given), seen)
    for name, mine, right in zip(("result", "query gradient", "key gradient", "value gradient"), found, expected):
        error = _largest_relative_error(mine, right)
        if not error <= TOLERANCE[dtype]:  # also where it is not a number
            return f"its {name} is off by {error:.2g} of exact attention's, allowed {TOLERANCE[dtype]:.2g}"
    return ""


def _inputs(heads: Heads, seen: np.ndarray, dtype: str) -> list[paddle.Tensor]:
    """Random query, key and value, and a random gradient of the result, which is 0 for padding."""
    numbers = np.random.default_rng(0)
    counts = (heads.query, heads.key_value, heads.key_value, heads.query)
    arrays = [numbers.standard_normal((BATCH, LENGTH, count, heads.size), dtype="float32") for count in counts]
    arrays[3] *= seen[:, :, None, None]
    return [paddle.to_tensor(array).astype(dtype) for array in arrays]


def _with_gradients(attend: Attend, given: list, seen: np.ndarray, dtype: str) -> list[np.ndarray]:
    """The result, 0 for padding, and the gradients of query, key and value, by Paddle."""
    query, key, value, upstream = (tensor.detach() for tensor in given)
    for tensor in (query, key, value):
        tensor.stop_gradient = False
    mask = None
    if not seen.all():
        hidden = np.where(_visible(seen), 0.0, float(paddle.finfo(getattr(paddle, dtype)).min))
        mask = paddle.to_tensor(hidden.astype("float32")).astype(dtype)
    result = attend(query, key, value, mask)
    gradients = paddle.grad(result, [query, key, value], grad_outputs=upstream)
    return [_array(result) * seen[:, :, None, None], *map(_array, gradients)]


def exact_attention(query, key, value, upstream, seen) -> Iterator[np.ndarray]:
    """Causal attention, 0 for padding, and its gradients for the gradient `upstream` of the result, in float32.

    query, upstream [b, s, heads, d], key, value [b, s, key_value_heads, d], seen [b, s]: False for padding.
    """
    groups = query.shape[2] // key.shape[2]
    scale = np.float32(1 / math.sqrt(query.shape[3]))
    q, dout = _heads_first(query), _heads_first(upstream)
    k, v = (np.repeat(_heads_first(one), groups, axis=1) for one in (key, value))
    scores = np.where(_visible(seen), q @ _transposed(k) * scale, np.float32(-1e30))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    result = weights @ v
    of_weights = dout @ _transposed(v)
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdims=True)) * scale
    yield _heads_first(result) * seen[:, :, None, None]
    yield _heads_first(of_scores @ k)
    yield _heads_first(_summed(_transposed(of_scores) @ q, groups))
    yield _heads_first(_summed(_transposed(weights) @ dout, groups))


def _visible(seen: np.ndarray) -> np.ndarray:
    """[b, 1, s, s]: whether a position (row) sees another (column): a token, not later. Padding sees itself alone."""
    causal = np.tril(np.ones((LENGTH, LENGTH), bool))
    return ((causal & seen[:, None, :]) | np.eye(LENGTH, dtype=bool))[:, None]


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

"""ALiBi under flash attention without a mask: the bias becomes a part of the product of queries and keys.

ALiBi (Press et al., arXiv 2108.12409) adds slope_h * j to the scores of key j in head h. Kernels of Paddle have it as a
mask of all scores alone: [batch, heads, queries, keys] in 16 bits (40 heads at 4,096 tokens: 1.25 GiB a sample, read
three times a layer), without the causal switch, so nothing above the diagonal is left out, and rounded to 8 bits: at
key 2,000 neighbours get the same bias. Here queries get columns with the slope, keys get columns with the position. The
kernel sums the products in float32, the causal switch works, and so does a mask or FlashMask beside it. Whether j is
counted from the start of a row or of a sample makes no difference: a number that all scores of a query share drops out
of the softmax.

No column is rounded: a slope is a sum of three numbers of the dtype, a position of two (a multiple of 256, and the
rest).
"""

import math
from functools import lru_cache

import paddle
from paddlenlp.transformers.llama import modeling as llama

ALIBI_COLUMNS = 8  # elements a head, as the plan counts them (launch/families/parameters.py)
PARTS = 3  # of a slope: 24 bits in bfloat16
STEP = 256  # bfloat16 holds the whole numbers up to 256, and their multiples by 256
POSITIONS = 65504  # float16 holds no larger number


def slopes_of(heads: int, degree: int = 1, rank: int = 0) -> tuple[float, ...]:
    """Return the slopes of a rank's heads.

    Args:
        heads: Of the model.
        degree: Of tensor parallelism.
        rank: Of tensor parallelism.
    """
    share = heads // max(degree, 1)
    return tuple(llama._get_interleave(heads)[rank * share : (rank + 1) * share])


def widened(
    query: paddle.Tensor, key: paddle.Tensor, value: paddle.Tensor, slopes: tuple[float, ...]
) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    """Return query, key and value with the columns; the values' are 0, and so are the result's, to be cut off.

    query [batch, queries, heads, size], key and value [batch, keys, heads, size]; slopes: one a head.
    """
    size, keys = query.shape[3], key.shape[1]
    assert keys <= POSITIONS, f"ALiBi: {keys} keys, {POSITIONS} are possible"
    # Kernels divide by the square root of the widened size.
    query = query * math.sqrt((size + ALIBI_COLUMNS) / size)
    return (
        _beside(query, _slope_columns(slopes, size, query.dtype)),
        _beside(key, _position_columns(keys, key.dtype)),
        _beside(value, paddle.zeros([1, 1, 1, ALIBI_COLUMNS], dtype=value.dtype)),
    )


def _beside(x: paddle.Tensor, columns: paddle.Tensor) -> paddle.Tensor:
    return paddle.concat([x, columns.expand([*x.shape[:-1], ALIBI_COLUMNS])], axis=-1)


# Once for all layers; of the lengths the last few.
@lru_cache(maxsize=2)
@paddle.no_grad()
def _slope_columns(slopes: tuple[float, ...], size: int, dtype: paddle.dtype) -> paddle.Tensor:
    """Return the slopes in columns, [1, 1, heads, columns]."""
    rest = paddle.to_tensor(slopes, dtype="float32") * math.sqrt(size + ALIBI_COLUMNS)
    parts = []
    for _ in range(PARTS):
        parts.append(rest.astype(dtype))
        rest = rest - parts[-1].astype("float32")
    return _filled(parts * 2)[None, None]


@lru_cache(maxsize=4)
@paddle.no_grad()
def _position_columns(length: int, dtype: paddle.dtype) -> paddle.Tensor:
    """Return the positions in columns, [1, length, 1, columns]."""
    position = paddle.arange(length, dtype="int64")
    rest = position % STEP
    parts = [rest] * PARTS + [position - rest] * PARTS
    return _filled([part.astype(dtype) for part in parts])[None, :, None]


def _filled(parts: list[paddle.Tensor]) -> paddle.Tensor:
    zeros = [paddle.zeros_like(parts[0])] * (ALIBI_COLUMNS - len(parts))
    return paddle.stack([*parts, *zeros], axis=-1)

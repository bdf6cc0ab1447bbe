"""The bias that the columns of ALiBi make, in float64, for test_flash_alibi.py."""

import numpy as np
import paddle

from launch.upstream.alibi_columns import slopes_of, widened

HEADS, SIZE = 40, 128


def bias_of_columns(dtype: str, keys: int) -> list[float]:
    """[largest bias, how far the largest difference of two biases of a head is off]"""
    slopes = slopes_of(HEADS)
    zeros = [paddle.zeros([1, length, HEADS, SIZE], dtype=dtype) for length in (1, keys, keys)]
    query, key, _ = (x.astype("float32").numpy().astype("float64")[0] for x in widened(*zeros, slopes))
    found = np.einsum("hd,khd->hk", query[0], key) / np.sqrt(query.shape[-1])
    right = np.array(slopes)[:, None] * np.arange(keys)
    return [float(found.max()), float(np.abs(found - right).max())]

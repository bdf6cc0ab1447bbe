"""ALiBi in columns, and layers of a pipeline that have it, for test_flash_alibi.py."""

import numpy as np
import paddle
from paddlenlp.transformers import LlamaConfig
from paddlenlp.transformers.llama import modeling_pp

from launch.families.named_configs import load_config
from launch.families.registry import FAMILIES
from launch.models.alibi_columns import slopes_of, widened
from launch.upstream import correct

HEADS, SIZE = 40, 128


def bias_of_columns(dtype: str, keys: int) -> list[float]:
    """[largest bias, how far the largest difference of two biases of a head is off]"""
    slopes = slopes_of(HEADS)
    zeros = [paddle.zeros([1, length, HEADS, SIZE], dtype=dtype) for length in (1, keys, keys)]
    query, key, _ = (x.astype("float32").numpy().astype("float64")[0] for x in widened(*zeros, slopes))
    found = np.einsum("hd,khd->hk", query[0], key) / np.sqrt(query.shape[-1])
    right = np.array(slopes)[:, None] * np.arange(keys)
    return [float(found.max()), float(np.abs(found - right).max())]


def pipeline() -> list:
    """[kinds of what embedding and layer hand on, how far the layer is off exact attention, relative]"""
    family = FAMILIES["baichuan"]
    correct(family.corrections)
    layers = {}
    for flash in (True, False):
        paddle.seed(1)
        config = LlamaConfig(**load_config(family.rehearsal_config), use_flash_attention=flash)
        layers[flash] = modeling_pp.LlamaEmbeddingPipe(config), modeling_pp.LlamaDecoderLayerPipe(config)
    embed, layer = layers[True]
    ids = paddle.to_tensor(np.random.default_rng(0).integers(5, 250, (2, 13)))
    handed = embed(ids), layer(embed(ids))
    embed, layer = layers[False]
    exact = layer(embed(ids))[0]
    kinds = [type(one).__name__ for one in handed]
    return [kinds, float((handed[1] - exact).abs().max() / exact.abs().max())]


def columns() -> int:
    """How many elements a head of ALiBi gets."""
    from launch.models.alibi_columns import ALIBI_COLUMNS

    return ALIBI_COLUMNS

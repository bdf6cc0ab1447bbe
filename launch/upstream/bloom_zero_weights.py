"""Bloom's random weights are zeros.

paddlenlp/transformers/bloom/modeling.py, BloomPreTrainedModel._init_weights: after drawing a layer's weight it sets
the weight, not the bias, to zero; the layers that tensor parallel uses are not drawn at all. A model that starts from
such weights has no attention and learns next to nothing. Corrected: weights are drawn with initializer_range, biases
are zero, in parallel layers, too.
"""

from contextlib import nullcontext

import paddle
from paddle.distributed.fleet.meta_parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    VocabParallelEmbedding,
    get_rng_state_tracker,
)
from paddlenlp.transformers.bloom.modeling import BloomPreTrainedModel

DRAWN = (
    paddle.nn.Linear,
    paddle.nn.Embedding,
    ColumnParallelLinear,
    RowParallelLinear,
    VocabParallelEmbedding,
)


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    BloomPreTrainedModel._init_weights = _init_weights


def _init_weights(self, layer) -> None:
    if not isinstance(layer, DRAWN):
        return
    # Ranks draw different values for their shards of a weight, the same values for a replicated weight.
    with get_rng_state_tracker().rng_state() if layer.weight.is_distributed else nullcontext():
        layer.weight.set_value(paddle.normal(mean=0.0, std=self.config.initializer_range, shape=layer.weight.shape))
    bias = getattr(layer, "bias", None)
    if bias is not None:
        bias.set_value(paddle.zeros_like(bias))

"""Bloom's random weights are zeros.

paddlenlp/transformers/bloom/modeling.py, BloomPreTrainedModel._init_weights: after drawing a layer's weight it sets
the weight, not the bias, to zero; the layers that tensor parallel uses are not drawn at all. A model that starts from
such weights has no attention and learns next to nothing. Corrected: weights are drawn with initializer_range, biases
are zero, in parallel layers, too.
"""

from contextlib import nullcontext

import paddle
from paddle.distributed import fleet
from paddle.distributed.fleet.meta_parallel import get_rng_state_tracker
from paddlenlp.transformers.bloom.modeling import BloomPreTrainedModel

DRAWN = (
    paddle.nn.Linear,
    paddle.nn.Embedding,
    fleet.meta_parallel.ColumnParallelLinear,
    fleet.meta_parallel.RowParallelLinear,
    fleet.meta_parallel.VocabParallelEmbedding,
)


def correct() -> None:
    BloomPreTrainedModel._init_weights = _init_weights


def _init_weights(self, layer) -> None:
    if not isinstance(layer, DRAWN):
        return
    # Ranks draw different numbers for their parts of a divided weight, the same for a whole one.
    with get_rng_state_tracker().rng_state() if layer.weight.is_distributed else nullcontext():
        layer.weight.set_value(paddle.normal(mean=0.0, std=self.config.initializer_range, shape=layer.weight.shape))
    if getattr(layer, "bias", None) is not None:
        layer.bias.set_value(paddle.zeros_like(layer.bias))

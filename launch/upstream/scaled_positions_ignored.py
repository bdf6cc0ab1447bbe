"""LLaMA knows one way of `rope_scaling`, and Qwen2 none.

Upstream: LlamaAttention._init_rope reads `rope_scaling` for rope_type llama3 alone, beside keys of its own for linear
and dynamic scaling; Qwen2Attention.__init__ reads nothing (paddlenlp/transformers/*/modeling.py).
Without the correction: a config.json with YaRN is trained and served with plain positions, in silence.
Here: where the configuration has a block, which launch/families/named_configs.py has read and checked by then, the
layer gets launch/models/scaled_rotary.py in place of what its constructor made.
"""

from functools import wraps

from paddlenlp.transformers.llama.modeling import LlamaAttention
from paddlenlp.transformers.qwen2.modeling import Qwen2Attention

from launch.models.scaled_rotary import put_scaled_positions

_constructors = {kind: kind.__init__ for kind in (LlamaAttention, Qwen2Attention)}


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    for kind, construct in _constructors.items():
        kind.__init__ = _with_scaled_positions(construct)


def _with_scaled_positions(construct):
    @wraps(construct)
    def __init__(self, config, *args, **kwargs):
        construct(self, config, *args, **kwargs)
        put_scaled_positions(self, config, self.head_dim)

    return __init__

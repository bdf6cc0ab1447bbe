"""Every attention layer keeps rotary tables of its own, for all positions that the model could take.

Upstream: the attention layers of LLaMA, Qwen2, Mistral and their kin (paddlenlp/transformers/*/modeling.py,
*RotaryEmbedding) each compute the cosines and sines of max_position_embeddings when they are made.
Without the correction: Qwen2-7B keeps 28 layers x 2 tables x 131,072 positions x 128 float32, 3.5 GiB, whatever the
length of its samples.
Here: layers with the same frequencies share two tables. Upstream's own code computes them when they are first needed,
for the positions of that sequence, rounded up (rotary_rows of launch/models/rotary_scaling.py, which the plan calls,
too). Scaled positions have tables of their own: launch/models/scaled_rotary.py.
"""

# pyright: reportAttributeAccessIssue=false
# One function replaces methods of classes with different signatures.

from collections.abc import Callable
from weakref import WeakValueDictionary

import paddle
from paddlenlp.transformers.llama import modeling as llama
from paddlenlp.transformers.mistral import modeling as mistral
from paddlenlp.transformers.mixtral import modeling as mixtral
from paddlenlp.transformers.qwen2 import modeling as qwen2
from paddlenlp.transformers.qwen2_moe import modeling as qwen2_moe

from launch.models.rotary_scaling import rotary_rows

KINDS = (
    llama.LlamaRotaryEmbedding,
    qwen2.Qwen2RotaryEmbedding,
    mistral.MistralRotaryEmbedding,
    mixtral.MixtralRotaryEmbedding,
    qwen2_moe.Qwen2MoeRotaryEmbedding,
)
_compute: dict[type, Callable] = {kind: kind._set_cos_sin_cache for kind in KINDS}
_forward: dict[type, Callable] = {kind: kind.forward for kind in KINDS}


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    for kind in KINDS:
        kind._set_cos_sin_cache = _remember_length
        kind.forward = _forward_with_shared_tables


class SharedTables:
    """Stands in for the layers with these frequencies in upstream's methods.

    No layer has the tables for a buffer: a cast of one model would round them for all.
    """

    def __init__(self, layer):
        self.inv_freq = paddle.to_tensor(layer.frequencies)
        self.max_seq_len_cached = 0
        self.cos_cached = self.sin_cached = None

    def grow(self, kind: type, rows: int, dtype: str) -> None:
        """Compute tables of more rows."""
        with paddle.no_grad(), paddle.amp.auto_cast(False):
            _compute[kind](self, rows, *([dtype] if kind is mistral.MistralRotaryEmbedding else []))


_shared: WeakValueDictionary[tuple, SharedTables] = WeakValueDictionary()  # as long as a layer uses them


def _remember_length(self, seq_len: int, dtype: str = "float32") -> None:
    """Remember the length instead of computing tables when a layer is made.

    dtype: Mistral's tables have the weights'.
    """
    self.positions, self.tables_dtype, self.tables, self.cos_sin_table = seq_len, dtype, None, None
    self.frequencies = self.inv_freq.numpy()  # a cast of the model rounds inv_freq, which Paddle takes for a buffer


def _forward_with_shared_tables(self, x: paddle.Tensor, seq_len: int) -> tuple[paddle.Tensor, paddle.Tensor]:
    kind = next(kind for kind in type(self).__mro__ if kind in _forward)
    if "tables" not in vars(self):  # made before the correction
        return _forward[kind](self, x, seq_len)
    if self.tables is None:
        key = kind, tuple(self.frequencies.tolist()), self.positions, self.tables_dtype, str(x.place)
        self.tables = _shared.get(key) or _shared.setdefault(key, SharedTables(self))
    end = self.positions if isinstance(self, llama.LlamaRotaryEmbedding) else max(self.positions, seq_len)
    if min(seq_len, end) > self.tables.max_seq_len_cached:
        self.tables.grow(kind, rotary_rows(seq_len, end), self.tables_dtype)
    return _forward[kind](self.tables, x, seq_len)

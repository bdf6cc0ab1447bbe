"""LLaMA with ALiBi (Baichuan-13B) under flash attention: its bias is a mask of all scores, which no kernel keeps.

paddlenlp/transformers/llama/modeling.py, forward of the model: makes a mask of [batch, 1, length, length] though the
causal one would do. llama/fusion_ops.py, fusion_flash_attention: adds the bias to it in each layer, and says
is_causal=True beside the mask of [batch, heads, length, length]. Paddle's flash attention kernel raised an error then
(phi/kernels/gpu/flash_attn_utils.h, FlashAttnParamsBase), 3.3.1 hands it both unchecked; its other two ignore the mask,
and the bias with it. Packed rows by their ends (FlashMask) lose the bias without a word. A pipeline sends the mask from
stage to stage.
Here the bias is in columns of queries and keys (alibi_columns.py); model and pipeline layers are told of no ALiBi, so
they make and send neither mask nor bias.
"""

from functools import wraps
from typing import Any

from paddlenlp.transformers.llama import fusion_ops, modeling_pp
from paddlenlp.transformers.llama import modeling as llama

from launch.models.alibi_columns import ALIBI_COLUMNS, slopes_of, widened
from launch.upstream.module_view import ModuleView

_stock = fusion_ops.fusion_flash_attention
_KINDS = (llama.LlamaModel, modeling_pp.LlamaEmbeddingPipe, modeling_pp.LlamaDecoderLayerPipe)
_made = {kind: kind.__init__ for kind in _KINDS}


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    fusion_ops.fusion_flash_attention = _attention
    for kind, made in _made.items():
        kind.__init__ = _told_of_no_alibi(made)


def _told_of_no_alibi(made):
    @wraps(made)
    def make(self, config, *args, **kwargs):
        made(self, config, *args, **kwargs)
        if config.alibi and config.use_flash_attention:
            self.config = ModuleView(config, alibi=False)

    return make


def _attention(query, config, key, value, mask, output_attentions, alibi=None, *args, **kwargs):
    """Attend as upstream does; the configuration decides, not the argument `alibi`."""
    if not getattr(config, "alibi", False):
        return _stock(query, config, key, value, mask, output_attentions, alibi, *args, **kwargs)
    heads, size = query.shape[2:]
    slopes = slopes_of(config.num_attention_heads, config.tensor_parallel_degree, config.tensor_parallel_rank)
    query, key, value = widened(query, key, value, slopes)
    out: Any = _stock(query, config, key, value, mask, False, None, *args, **kwargs)
    out = out.reshape([*out.shape[:-1], heads, size + ALIBI_COLUMNS])[..., :size].flatten(-2)
    return (out, None) if output_attentions else out

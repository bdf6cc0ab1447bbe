"""Bloom under flash attention: its ALiBi bias is a mask of all scores, made anew in each layer.

paddlenlp/transformers/bloom/modeling.py, _prepare_attn_mask: a mask of [batch heads, length, length] in float32, though
all heads have the same and none is needed where the causal one would do. BloomAttention.forward: rounds it to 16 bits
and adds the bias, in each layer. Each is as large as all scores, which flash attention is there to save.
Here the bias is in columns of queries and keys (alibi_columns.py), and a mask that is given is kept once for all heads,
[batch, 1, length, length] in the dtype of the scores.
"""

from contextvars import ContextVar
from functools import wraps
from inspect import signature

import paddle
from paddlenlp.transformers.bloom import modeling as bloom

from launch.models.alibi_columns import slopes_of, widened
from launch.upstream.llama_flash_masks import attention

_forward, _mask, _attend = (
    bloom.BloomModel.forward,
    bloom.BloomModel._prepare_attn_mask,
    bloom.BloomAttention.forward,
)
_without_mask: ContextVar[bool] = ContextVar("without_mask", default=False)


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    bloom.BloomModel.forward = _model_forward
    bloom.BloomModel._prepare_attn_mask = _prepare  # pyright: ignore[reportAttributeAccessIssue]  # None: causal
    bloom.BloomAttention.forward = _attention_forward


@wraps(_forward)
def _model_forward(self, *args, **kwargs):
    given = signature(_forward).bind(self, *args, **kwargs).arguments
    before = _without_mask.set(given.get("attention_mask") is None)
    try:
        return _forward(self, *args, **kwargs)
    finally:
        _without_mask.reset(before)


# paddlenlp drops arguments that a new forward does not name (transformers/utils.py, adapt_stale_fwd_patch).
_model_forward.__signature__ = signature(_forward)  # pyright: ignore[reportAttributeAccessIssue]


def _prepare(self, attention_mask, input_shape, past_key_values_length, num_heads):
    """Return the mask [batch, 1, queries, keys], to be added to the scores, or None: causal."""
    if not self.config.use_flash_attention:
        return _mask(self, attention_mask, input_shape, past_key_values_length, num_heads)
    if _without_mask.get():
        return None
    batch, queries = input_shape
    stock = _mask(self, attention_mask, input_shape, past_key_values_length, 1)
    mask = stock.reshape([batch, 1, queries, -1]).astype(self.word_embeddings_layernorm.weight.dtype)
    return paddle.clip(mask, min=float(paddle.finfo(mask.dtype).min))


def _attention_forward(
    self,
    hidden_states,
    residual,
    alibi,
    attention_mask,
    layer_past=None,
    head_mask=None,
    use_cache=False,
    output_attentions=False,
):
    if not self.config.use_flash_attention:
        return _attend(
            self, hidden_states, residual, alibi, attention_mask, layer_past, head_mask, use_cache, output_attentions
        )
    query, key, value = self._split_heads(self.query_key_value(hidden_states))
    if layer_past is not None:
        key, value = (paddle.concat(pair, axis=1) for pair in zip(layer_past, (key, value), strict=True))
    present = (key, value) if use_cache else None
    size, config = query.shape[-1], self.config
    slopes = slopes_of(config.n_head, config.tensor_parallel_degree, config.tensor_parallel_rank)
    out = attention(
        *widened(query, key, value, slopes),
        attn_mask=attention_mask,
        is_causal=attention_mask is None,
        dropout_p=config.attention_dropout,
        training=self.training,
    )
    out = self.dense(out[..., :size].flatten(-2))
    out = bloom.dropout_add(out, residual, self.hidden_dropout, self.training)
    return (out, present, None) if output_attentions else (out, present)

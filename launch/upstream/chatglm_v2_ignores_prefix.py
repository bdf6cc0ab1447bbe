"""ChatGLM2 leaves out given keys and values, such as a prefix, unless it is to return new ones.

paddlenlp/transformers/chatglm_v2/modeling.py, SelfAttention.forward: keys and values of the cache are put before the
layer's own only with use_cache, which training has not; the mask, which counts them, then does not fit. Corrected: they
are put there whenever they are given.
"""

from paddlenlp.transformers.chatglm_v2.modeling import SelfAttention

_stock_forward = SelfAttention.forward


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    SelfAttention.forward = _forward  # pyright: ignore[reportAttributeAccessIssue]


def _forward(self, hidden_states, attention_mask, rotary_pos_emb, kv_cache=None, use_cache=True, **kwargs):
    output, cache = _stock_forward(
        self, hidden_states, attention_mask, rotary_pos_emb, kv_cache, use_cache or kv_cache is not None, **kwargs
    )
    return output, cache if use_cache else None

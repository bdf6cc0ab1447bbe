"""ChatGLM2 in a pipeline trains without positions.

paddlenlp/transformers/chatglm_v2/modeling_pp.py: stages hand on (hidden states, mask, position_ids, rotary) as a tuple
without those that are None, and read it by its length; without position_ids the rotary embedding is taken for them,
and no rotation is applied. Losses are 0.007 off in a tiny model. Corrected: the first stage always states positions.
"""

import paddle
from paddlenlp.transformers.chatglm_v2.modeling_pp import EmbeddingPipe, parse_args

STOCK = EmbeddingPipe.forward


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    EmbeddingPipe.forward = _forward


def _forward(self, args):
    input_ids, attention_mask, position_ids, *_ = parse_args(args)
    if attention_mask is None:
        attention_mask = paddle.ones(input_ids.shape, dtype="bool")
    if position_ids is None:
        position_ids = paddle.arange(input_ids.shape[1], dtype="int64").expand(input_ids.shape)
    return STOCK(self, (input_ids, attention_mask, position_ids))

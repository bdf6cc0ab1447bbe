"""Mixtral's experts compute with weights of the wrong shape, and those without a token have no gradient.

Upstream: MixtralSparseMoeBlock.forward (paddlenlp/transformers/mixtral/modeling.py) takes the tokens of each expert by
paddle.where, whose indices are [n, 1] in the versions of Paddle that it was written for, and multiplies the outputs
[n, hidden] by routing_weights[tokens, k]. An expert without a token is passed over.
Without the correction: the indices are [n] in Paddle 3, so the weights are, too, and broadcast along the hidden size:
an error, or wrong outputs where n is the hidden size. An expert without a token has no gradient on this rank: the
others wait for it in data parallelism and stage 2. The host waits for the card once for each expert.
Upstream also adds the auxiliary loss, where the configuration asks for it, to the loss of an evaluation, and gives it
in the place of the logits to who gives no labels.
Here: tokens are sorted by expert (launch/models/expert_mixing.py), and the auxiliary loss is part of training alone.
"""

import paddle
import paddle.nn.functional as F
from paddlenlp.transformers.mixtral.modeling import MixtralForCausalLM, MixtralSparseMoeBlock

from launch.models.expert_mixing import mixed

_stock_forward = MixtralForCausalLM.forward


def correct() -> None:
    MixtralSparseMoeBlock.forward = _block_forward
    MixtralForCausalLM.forward = _forward


def _block_forward(self, hidden_states: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
    """hidden_states: [batch, length, hidden]. The result like it, and the logits of the router, [tokens, experts]."""
    rows = hidden_states.reshape([-1, hidden_states.shape[-1]])
    logits = self.gate(rows)
    with paddle.amp.auto_cast(False):
        weights, chosen = paddle.topk(F.softmax(logits.astype("float32"), axis=-1), self.top_k, axis=-1)
        weights = (weights / weights.sum(axis=-1, keepdim=True)).astype(rows.dtype)
    return mixed(rows, weights, chosen, self.experts).reshape(hidden_states.shape), logits


def _forward(
    self,
    input_ids=None,
    position_ids=None,
    attention_mask=None,
    inputs_embeds=None,
    labels=None,
    use_cache=False,
    past_key_values=None,
    output_attentions=None,
    output_hidden_states=None,
    output_router_logits=None,
    return_dict=None,
):
    """All by name, as upstream: paddlenlp reads what a model takes from the signature of this very function."""
    if output_router_logits is None:
        output_router_logits = self.config.output_router_logits and self.training and labels is not None
    return _stock_forward(
        self, input_ids, position_ids, attention_mask, inputs_embeds, labels, use_cache, past_key_values,
        output_attentions, output_hidden_states, output_router_logits, return_dict,
    )  # fmt: skip

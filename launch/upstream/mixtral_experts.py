"""Mixtral's experts compute with weights of the wrong shape, and those without a token have no gradient.

Upstream: MixtralSparseMoeBlock.forward (paddlenlp/transformers/mixtral/modeling.py) takes the tokens of each expert by
paddle.where, whose indices are [n, 1] in the versions of Paddle that it was written for, and multiplies the outputs
[n, hidden] by routing_weights[tokens, k]. An expert without a token is passed over.
Without the correction: the indices are [n] in Paddle 3, so the weights are, too, and broadcast along the hidden size:
an error, or wrong outputs where n is the hidden size. An expert without a token has no gradient on this rank: the
others wait for it in data parallelism and stage 2. The host waits for the card once for each expert.
Here: tokens are sorted by expert (launch/models/expert_mixing.py), and the auxiliary loss is part of training alone
(auxiliary_loss.py).
"""

import paddle
from paddlenlp.transformers.mixtral.modeling import MixtralForCausalLM, MixtralSparseMoeBlock

from launch.models.expert_mixing import mixed, routed
from launch.upstream.auxiliary_loss import in_training_alone

_forward = in_training_alone(MixtralForCausalLM.forward)


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    MixtralSparseMoeBlock.forward = _block_forward
    MixtralForCausalLM.forward = _forward


def _block_forward(self, hidden_states: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Return the output, like hidden_states [batch, length, hidden], and the router's logits [tokens, experts]."""
    rows = hidden_states.reshape([-1, hidden_states.shape[-1]])
    logits = self.gate(rows)
    weights, chosen = routed(logits, self.top_k, normalized=True)
    return mixed(rows, weights.astype(rows.dtype), chosen, self.experts).reshape(hidden_states.shape), logits

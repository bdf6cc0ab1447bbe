"""Qwen2-MoE's experts fail with Paddle 3; behind that: a router of ones, weights never normalized, no auxiliary loss.

Upstream: Qwen2MoeSparseMoEBlock (paddlenlp/transformers/qwen2_moe/modeling.py) on moe_layer.py and moe_gate.py.
Without the correction: PretrainedMoEGate._priority multiplies int32 by a cumsum, int64 in Paddle 3: TypeError. With an
older Paddle, as read in the code: a new router has ones for weights, so that all tokens choose the same experts, and
_init_weights does not know it. norm_topk_prob does not reach the router. Under data parallelism each rank makes a part
of the experts only, without use_expert_parallel. What the layers give for the logits of the router is a loss, on which
load_balancing_loss_func fails. Tokens reach experts by products with [tokens, experts, capacity], where the capacity
is the most tokens that any expert has: 0.27 GB a tensor for 4,096 tokens, 4 of 60 experts each and all equally busy,
many times as much where they are not.
Here: a block with the same parameters, whose tokens are sorted by expert (launch/models/expert_mixing.py). The
auxiliary loss is part of training alone (auxiliary_loss.py).
"""

import paddle
from paddle import nn
from paddle.nn.functional import sigmoid
from paddlenlp.transformers.qwen2_moe import modeling

from launch.models.expert_mixing import mixed, routed
from launch.upstream.auxiliary_loss import in_training_alone

_forward = in_training_alone(modeling.Qwen2MoeForCausalLM.forward)


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    modeling.Qwen2MoeSparseMoEBlock = SparseBlock  # pyright: ignore[reportAttributeAccessIssue]  # for new layers
    modeling.Qwen2MoeForCausalLM.forward = _forward


class SparseBlock(nn.Layer):
    """Experts, and one more that gets all tokens, times the sigmoid of its own gate."""

    def __init__(self, config: modeling.Qwen2MoeConfig):
        super().__init__()
        self.top_k, self.normalized = config.num_experts_per_tok, config.norm_topk_prob
        self.gate = nn.Linear(config.hidden_size, config.num_experts, bias_attr=False)
        self.experts = nn.LayerList([modeling.Qwen2MoeMLP(config) for _ in range(config.num_experts)])
        self.shared_expert = modeling.Qwen2MoeMLP(config, is_shared=True)
        self.shared_expert_gate = nn.Linear(config.hidden_size, 1, bias_attr=False)

    def forward(self, hidden_states: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return the output, like hidden_states [batch, length, hidden], and the router's logits [tokens, experts]."""
        rows = hidden_states.reshape([-1, hidden_states.shape[-1]])
        logits = self.gate(rows)
        weights, chosen = routed(logits, self.top_k, self.normalized)
        out = mixed(rows, weights.astype(rows.dtype), chosen, self.experts)
        out = out + sigmoid(self.shared_expert_gate(rows)) * self.shared_expert(rows)
        return out.reshape(hidden_states.shape), logits

"""Qwen2-MoE's experts fail with Paddle 3; behind that: a router of ones, weights never normalized, no auxiliary loss.

Upstream: Qwen2MoeSparseMoEBlock (paddlenlp/transformers/qwen2_moe/modeling.py) on moe_layer.py and moe_gate.py.
Without the correction: PretrainedMoEGate._priority multiplies int32 by a cumsum, int64 in Paddle 3: TypeError. With an
older Paddle, as read in the code: a new router has ones for weights, so that all tokens choose the same experts, and
_init_weights does not know it. norm_topk_prob does not reach the router. Under data parallelism each rank makes a part
of the experts only, without use_expert_parallel. What the layers give for the logits of the router is a loss, on which
load_balancing_loss_func fails. Tokens reach experts by products with [tokens, experts, capacity], where the capacity
is the most tokens that any expert has: 0.27 GB a tensor for 4,096 tokens, 4 of 60 experts each and all equally busy,
many times as much where they are not.
Here: a block with the same parameters, whose tokens are sorted by expert (launch/models/expert_mixing.py), or that of
launch/models for a family which paddlenlp lacks. The auxiliary loss is part of training alone (auxiliary_loss.py), over
the layers that have experts.
"""

import paddle
from paddle import nn
from paddle.nn.functional import sigmoid
from paddlenlp.transformers.qwen2_moe import modeling

from launch.models.sparse_block import BLOCKS, SparseBlock
from launch.upstream.auxiliary_loss import in_training_alone

_forward = in_training_alone(modeling.Qwen2MoeForCausalLM.forward)
_auxiliary_loss = modeling.load_balancing_loss_func


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    modeling.Qwen2MoeSparseMoEBlock = _block  # pyright: ignore[reportAttributeAccessIssue]  # for new layers
    modeling.Qwen2MoeForCausalLM.forward = _forward
    modeling.load_balancing_loss_func = _of_sparse_layers


def _of_sparse_layers(logits: tuple, *others):
    return _auxiliary_loss(tuple(one for one in logits if one is not None), *others)


def _block(config: modeling.Qwen2MoeConfig) -> nn.Layer:
    return BLOCKS.get(config.model_type, SharedBlock)(config)


class SharedBlock(SparseBlock):
    """Experts, and one more that gets all tokens, times the sigmoid of its own gate."""

    def __init__(self, config: modeling.Qwen2MoeConfig):
        super().__init__(config)
        self.shared_expert = modeling.Qwen2MoeMLP(config, is_shared=True)
        self.shared_expert_gate = nn.Linear(config.hidden_size, 1, bias_attr=False)

    def shared(self, rows: paddle.Tensor, out: paddle.Tensor) -> paddle.Tensor:
        """Add what the shared expert makes of the rows."""
        return out + sigmoid(self.shared_expert_gate(rows)) * self.shared_expert(rows)

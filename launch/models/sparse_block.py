"""The block of experts of paddlenlp's Qwen2-MoE, which launch/upstream/qwen2_moe_experts.py puts there, by model."""

import paddle
from paddle import nn
from paddlenlp.transformers.qwen2_moe import modeling

from launch.models.expert_mixing import mixed, routed


class SparseBlock(nn.Layer):
    """Experts alone: every token goes to some of them."""

    def __init__(self, config: modeling.Qwen2MoeConfig):
        super().__init__()
        self.top_k, self.normalized = config.num_experts_per_tok, config.norm_topk_prob
        self.gate = nn.Linear(config.hidden_size, config.num_experts, bias_attr=False)
        self.experts = nn.LayerList([modeling.Qwen2MoeMLP(config) for _ in range(config.num_experts)])

    def forward(self, hidden_states: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return the output, like hidden_states [batch, length, hidden], and the router's logits [tokens, experts]."""
        rows = hidden_states.reshape([-1, hidden_states.shape[-1]])
        weights, chosen, logits = self.route(rows)
        out = self.shared(rows, mixed(rows, weights.astype(rows.dtype), chosen, self.experts))
        return out.reshape(hidden_states.shape), logits

    def route(self, rows: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
        """Return each token's weights and experts, [tokens, k] both, and the logits of the router."""
        logits = self.gate(rows)
        return *routed(logits, self.top_k, self.normalized), logits

    def shared(self, rows: paddle.Tensor, out: paddle.Tensor) -> paddle.Tensor:
        """Return what the experts made of the rows, with that of an expert for all tokens where there is one."""
        return out


BLOCKS: dict[str, type[SparseBlock]] = {"qwen3_moe": SparseBlock}  # by model_type; Qwen2-MoE has a block of its own

"""ERNIE 4.5 with experts: paddlenlp's Qwen2-MoE with ERNIE's attention, a router of its own, and first layers without.

Experts are chosen by their softmax shares plus a bias for each, which no gradient reaches; their weights are the shares
without it, divided by their sum, all in float32. Some experts get every token: one MLP as wide as these together. The
head may be the word embedding. Source: transformers, models/ernie4_5_moe/modeling_ernie4_5_moe.py.
"""

import paddle
from paddle import nn
from paddlenlp.transformers import Qwen2ForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen2MoeModel
from paddlenlp.transformers.qwen2.modeling import Qwen2LMHead, Qwen2MLP
from paddlenlp.transformers.qwen2_moe.modeling import Qwen2MoeMLP

from launch.models.ernie4_5_model import Ernie4_5Attention
from launch.models.expert_mixing import routed_with_bias
from launch.models.qwen3_model import ATTENTIONS, put_attention
from launch.models.sparse_block import BLOCKS, SparseBlock


class Ernie4_5_MoeConfig(Qwen2MoeConfig):
    """The configuration of an ERNIE 4.5 with experts.

    head_dim: elements of a head; None: hidden_size / num_attention_heads. moe_layer_start_index: the first layer that
    has experts. moe_norm_min: the least that weights are divided by.
    """

    model_type = "ernie4_5_moe"

    def __init__(self, head_dim: int | None = None, moe_layer_start_index=1, moe_norm_min=1e-12, **kwargs):
        self.head_dim, self.moe_layer_start_index, self.moe_norm_min = head_dim, moe_layer_start_index, moe_norm_min
        kwargs = {"sliding_window": None} | kwargs
        super().__init__(**kwargs)  # pyright: ignore[reportArgumentType]  # paddlenlp's have no hints


class Correction(nn.Layer):
    """The bias of the choice of experts, in float32 whatever the dtype of the model, and never trained."""

    stays_in_float32 = True  # for launch/training/trainer.py

    def __init__(self, experts: int):
        super().__init__()
        zeros = nn.initializer.Constant(0.0)
        self.e_score_correction_bias = self.create_parameter([1, experts], dtype="float32", default_initializer=zeros)
        self.e_score_correction_bias.stop_gradient = True


class ErnieBlock(SparseBlock):
    """Experts, chosen with a bias, and an MLP that gets all tokens."""

    def __init__(self, config: Ernie4_5_MoeConfig):
        super().__init__(config)
        self.norm_min = config.moe_norm_min
        self.moe_statics = Correction(config.num_experts)
        self.shared_expert = Qwen2MoeMLP(config, is_shared=True)

    def route(self, rows: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
        """Return each token's weights and experts, [tokens, k] both, and the logits of the router, in float32."""
        with paddle.amp.auto_cast(False):
            logits = paddle.matmul(rows.astype("float32"), self.gate.weight.astype("float32"))
        bias = self.moe_statics.e_score_correction_bias
        return *routed_with_bias(logits, bias, self.top_k, self.norm_min), logits

    def shared(self, rows: paddle.Tensor, out: paddle.Tensor) -> paddle.Tensor:
        """Add what the shared experts make of the rows."""
        return out + self.shared_expert(rows)


BLOCKS["ernie4_5_moe"] = ErnieBlock
ATTENTIONS["ernie4_5_moe"] = Ernie4_5Attention


def _put_layers(layers: nn.LayerList, config) -> None:
    put_attention(layers)
    for layer in list(layers)[: config.moe_layer_start_index]:
        layer.mlp = Qwen2MLP(config)


class Ernie4_5_MoeModel(Qwen2MoeModel):
    """ERNIE 4.5 with experts, without its head."""

    config_class = Ernie4_5_MoeConfig

    def __init__(self, config: Ernie4_5_MoeConfig):
        super().__init__(config)
        _put_layers(self.layers, config)


class Ernie4_5_MoeForCausalLM(Qwen2MoeForCausalLM):
    """ERNIE 4.5 with experts."""

    config_class = Ernie4_5_MoeConfig

    def __init__(self, config):
        super().__init__(config)
        _put_layers(self.qwen2_moe.layers, config)
        if config.tie_word_embeddings:
            embeddings = self.qwen2_moe.embed_tokens.weight
            self.lm_head = Qwen2LMHead(config, embeddings, transpose_y=True)  # pyright: ignore[reportArgumentType]
            self.tie_weights()

    @classmethod
    def _get_tensor_parallel_mappings(cls, config, is_split=True):
        """Return those of Qwen2, which has the first layers and a tied head, with those of the experts."""
        experts = super()._get_tensor_parallel_mappings(config, is_split)
        dense = Qwen2ForCausalLM._get_tensor_parallel_mappings(config, is_split)  # pyright: ignore[reportArgumentType]
        return experts | dense

"""Qwen3-MoE: paddlenlp's Qwen2-MoE with Qwen3's attention, and experts alone, none of which gets every token.

All else is the code of Qwen2-MoE, whose names the parameters have, too.
Source: transformers, models/qwen3_moe/modeling_qwen3_moe.py.
"""

from paddlenlp.transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen2MoeModel

from launch.models.qwen3_model import ATTENTIONS, Qwen3Attention, put_attention


class Qwen3MoeConfig(Qwen2MoeConfig):
    """The configuration of a Qwen3-MoE. head_dim: elements of a head; None: hidden_size / num_attention_heads."""

    model_type = "qwen3_moe"

    def __init__(self, head_dim: int | None = None, **kwargs):
        self.head_dim = head_dim
        kwargs = {"shared_expert_intermediate_size": None, "sliding_window": None} | kwargs
        super().__init__(**kwargs)  # pyright: ignore[reportArgumentType]  # paddlenlp's have no hints


ATTENTIONS["qwen3_moe"] = Qwen3Attention


class Qwen3MoeModel(Qwen2MoeModel):
    """Qwen3-MoE without its head."""

    config_class = Qwen3MoeConfig

    def __init__(self, config: Qwen3MoeConfig):
        super().__init__(config)
        put_attention(self.layers)


class Qwen3MoeForCausalLM(Qwen2MoeForCausalLM):
    """Qwen3-MoE."""

    config_class = Qwen3MoeConfig

    def __init__(self, config: Qwen3MoeConfig):
        super().__init__(config)
        put_attention(self.qwen2_moe.layers)

"""Qwen3, dense: paddlenlp's Qwen2 with another attention layer.

Heads have a size of their own (`head_dim`), which need not be hidden_size / heads; projections have no bias; and each
head of the queries and keys goes through an RMSNorm over its elements before positions turn it. All else is Qwen2's
code, whose names the parameters have, too: qwen2.layers.0.self_attn.q_norm.weight. Source: transformers,
models/qwen3/modeling_qwen3.py; Qwen3 technical report (arXiv 2505.09388), section 2.
"""

from collections.abc import Callable, Iterable

import paddle
from paddle import nn
from paddle.distributed import fleet
from paddle.distributed.fleet.recompute.recompute import recompute
from paddlenlp.transformers import (
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForCausalLMPipe,
    Qwen2Model,
    linear_utils,
)
from paddlenlp.transformers.qwen2 import modeling as qwen2
from paddlenlp.transformers.qwen2.modeling import (
    Qwen2Attention,
    Qwen2RMSNorm,
    Qwen2RotaryEmbedding,
    apply_rotary_pos_emb,
    repeat_kv,
)
from paddlenlp.transformers.qwen2.modeling_pp import Qwen2DecoderLayerPipe

from launch.models.scaled_rotary import put_scaled_positions


class Qwen3Config(Qwen2Config):
    """Qwen3's configuration.

    Attributes:
        head_dim: Elements of a head; None: hidden_size / num_attention_heads.
    """

    model_type = "qwen3"

    def __init__(self, head_dim: int | None = None, **kwargs):
        self.head_dim = head_dim
        super().__init__(**kwargs)


class Qwen3RMSNorm(Qwen2RMSNorm):
    """Qwen2's RMSNorm over the `size` elements of a head: [..., size] in and out.

    A rank of tensor parallelism has some of the heads, whose gradients belong to a part of the model. They are summed
    as they come, so that all ranks keep the same weight.
    """

    def __init__(self, config: Qwen3Config, size: int):
        nn.Layer.__init__(self)  # Qwen2RMSNorm's is for hidden_size
        self.config, self.variance_epsilon = config, config.rms_norm_eps
        self.weight = self.create_parameter(
            [size], dtype=paddle.get_default_dtype(), default_initializer=nn.initializer.Constant(1.0)
        )
        if config.tensor_parallel_degree > 1:
            self.weight.register_hook(_of_all_heads)


def _of_all_heads(gradient: paddle.Tensor) -> paddle.Tensor:
    total = gradient.clone()
    group = fleet.get_hybrid_communicate_group().get_model_parallel_group()
    paddle.distributed.all_reduce(total, group=group)
    return total


class Qwen3Attention(Qwen2Attention):
    """Attention of this rank's heads.

    norms_heads: whether queries and keys are normalized. rotary_class: of the layer of cosines and sines.

    Attributes:
        rotate: What turns queries and keys by them; None: paddlenlp's apply_rotary_pos_emb, which
            launch/cpu/attention.py replaces.
    """

    norms_heads = True
    rotary_class = Qwen2RotaryEmbedding
    rotate: Callable | None = None

    def __init__(self, config: Qwen3Config, layerwise_recompute: bool):
        nn.Layer.__init__(self)  # Qwen2Attention's makes projections of other shapes
        self.config, self.sequence_parallel, self.seq_length = config, config.sequence_parallel, config.seq_length
        self.layerwise_recompute, self.recompute_granularity = layerwise_recompute, config.recompute_granularity
        self.enable_recompute = False  # the Trainer switches it on
        self.head_dim = config.head_dim or config.hidden_size // config.num_attention_heads
        self.num_heads = _part(config, "num_attention_heads")
        self.num_key_value_heads = _part(config, "num_key_value_heads")
        self.num_key_value_groups = self.num_heads // self.num_key_value_heads
        query, key_value = (heads * self.head_dim for heads in (config.num_attention_heads, config.num_key_value_heads))
        self.q_proj = _column(config, config.hidden_size, query)
        self.k_proj = _column(config, config.hidden_size, key_value)
        self.v_proj = _column(config, config.hidden_size, key_value)
        self.o_proj = _row(config, query, config.hidden_size)
        if self.norms_heads:
            self.q_norm, self.k_norm = (Qwen3RMSNorm(config, self.head_dim) for _ in range(2))
        positions, theta = config.max_position_embeddings, config.rope_theta
        self.rotary_emb = self.rotary_class(self.head_dim, positions, theta)  # pyright: ignore[reportArgumentType]  # its hint: int
        put_scaled_positions(self, config, self.head_dim)
        self.attn_func = qwen2.scaled_dot_product_attention

    def forward(
        self,
        hidden_states,
        position_ids=None,
        past_key_value: tuple[paddle.Tensor, paddle.Tensor] | None = None,
        attention_mask=None,
        output_attentions=False,
        use_cache=False,
        attn_mask_startend_row_indices=None,
        **kwargs,
    ):
        """Return the attention's output, in the shape of hidden_states.

        hidden_states: [batch, length, hidden], under sequence parallelism [batch x length / ranks, hidden]. With
        output_attentions or use_cache, return (output, attention weights, keys and values), each where requested.
        """
        query, key, value = self.q_proj(hidden_states), self.k_proj(hidden_states), self.v_proj(hidden_states)
        rows = [-1, self.seq_length] if self.sequence_parallel else [0, 0]
        query = query.reshape([*rows, self.num_heads, self.head_dim])
        key = key.reshape([*rows, self.num_key_value_heads, self.head_dim])
        value = value.reshape([*rows, self.num_key_value_heads, self.head_dim])
        if self.norms_heads:
            query = self.q_norm(query)
            key = self.k_norm(key)

        past = past_key_value[0].shape[1] if past_key_value is not None else 0
        cos, sin = self.rotary_emb(value, seq_len=past + key.shape[1])
        query, key = (self.rotate or apply_rotary_pos_emb)(query, key, cos, sin, position_ids)
        if past_key_value is not None:
            key = paddle.concat([past_key_value[0], key], axis=1)
            value = paddle.concat([past_key_value[1], value], axis=1)
        cache = ((key, value),) if use_cache else ()
        if not self.config.use_flash_attention:
            key, value = repeat_kv(key, self.num_key_value_groups), repeat_kv(value, self.num_key_value_groups)

        out = self._attend(query, key, value, attention_mask, output_attentions, attn_mask_startend_row_indices)
        out, *weights = out if output_attentions else (out,)
        outputs = (self.o_proj(out), *weights, *cache)
        return outputs if len(outputs) > 1 else outputs[0]

    def _attend(self, query, key, value, mask, output_attentions, row_indices):
        given = (query, self.config, key, value, mask, output_attentions)
        named = {
            "attn_mask_startend_row_indices": row_indices,
            "training": self.training,
            "sequence_parallel": self.sequence_parallel,
        }
        recomputed = self.enable_recompute and self.layerwise_recompute and self.recompute_granularity == "core_attn"
        if recomputed and not (query.stop_gradient and key.stop_gradient and value.stop_gradient):
            return recompute(self.attn_func, *given, **named, use_reentrant=self.config.recompute_use_reentrant)
        return self.attn_func(*given, **named)


def _part(config: Qwen3Config, heads: str) -> int:
    """Return the number of this rank's heads of a kind.

    Raises AssertionError where the ranks do not divide them, as Qwen2 does.
    """
    count, degree = getattr(config, heads), max(config.tensor_parallel_degree, 1)
    assert count % degree == 0, f"{heads}: {count}, tensor_parallel_degree: {degree}"
    return count // degree


def _column(config: Qwen3Config, inputs: int, outputs: int) -> nn.Layer:
    if config.tensor_parallel_degree <= 1:
        return linear_utils.Linear(inputs, outputs, bias_attr=False)
    kind = "ColumnSequenceParallelLinear" if config.sequence_parallel else "ColumnParallelLinear"
    return getattr(linear_utils, kind)(inputs, outputs, has_bias=False, gather_output=False)


def _row(config: Qwen3Config, inputs: int, outputs: int) -> nn.Layer:
    if config.tensor_parallel_degree <= 1:
        return linear_utils.Linear(inputs, outputs, bias_attr=False)
    kind = "RowSequenceParallelLinear" if config.sequence_parallel else "RowParallelLinear"
    return getattr(linear_utils, kind)(inputs, outputs, has_bias=False, input_is_parallel=True)


ATTENTIONS: dict[str, type[Qwen3Attention]] = {"qwen3": Qwen3Attention}  # by model_type


def put_attention(layers: Iterable[nn.Layer]) -> None:
    """Replace the attention that the constructor of a Qwen2DecoderLayer makes by that of the model's type."""
    for layer in layers:
        layer.self_attn = ATTENTIONS[layer.config.model_type](layer.config, layer.layerwise_recompute)


class Qwen3Model(Qwen2Model):
    """Qwen3's decoder: Qwen2's with its own attention."""

    config_class = Qwen3Config

    def __init__(self, config: Qwen3Config):
        super().__init__(config)
        put_attention(self.layers)


class Qwen3ForCausalLM(Qwen2ForCausalLM):
    """Qwen3 with an output head."""

    config_class = Qwen3Config

    def __init__(self, config: Qwen3Config):
        super().__init__(config)
        put_attention(self.qwen2.layers)


class Qwen2DecoderLayerPipeOfQwen3(Qwen2DecoderLayerPipe):
    """Qwen2ForCausalLMPipe divides its stages by layers whose class has Qwen2DecoderLayer in its name."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        put_attention([self])


class Qwen3ForCausalLMPipe(Qwen2ForCausalLMPipe):
    """Qwen3 in pipeline stages."""

    config_class = Qwen3Config

    def add_sequential_layer(self, layer_desc, name_prefix=""):
        """Add a layer, a decoder layer as Qwen3's."""
        if layer_desc.layer_func is Qwen2DecoderLayerPipe:
            layer_desc.layer_func = Qwen2DecoderLayerPipeOfQwen3
        super().add_sequential_layer(layer_desc, name_prefix)

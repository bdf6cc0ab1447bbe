"""Prefix tuning: trained keys and values before those of the first token, in every layer (arXiv 2101.00190)."""

import math

import numpy as np
import paddle
import paddlenlp.peft.prefix as upstream
from paddle.distributed import fleet
from paddle.distributed.fleet.layers.mpu import mp_ops
from paddlenlp.peft import PrefixConfig, PrefixModelForCausalLM

from launch.families.parameters import attention_heads, head_size, key_value_heads, layers
from launch.families.registry import family_of_config


class PrefixModel(PrefixModelForCausalLM):
    """A frozen model with a prefix, whose table every rank of tensor parallelism keeps whole.

    Upstream divides the table by tokens, and what is read from it as one row of all layers: a rank's heads then get
    other layers' numbers than on one process, and the table the gradients of one rank's heads only. Here heads are
    divided as the model's are, and their gradients put together again.
    """

    def __init__(self, model, config: PrefixConfig):
        """config.tensor_parallel_degree must be -1: upstream then makes a whole table."""
        family = family_of_config(model.config.to_dict())
        super().__init__(model, config, getattr(upstream, family.prefix_postprocess))
        config.tensor_parallel_degree = -1  # the model's now

    @property
    def table(self) -> paddle.Tensor:
        """What is trained: [tokens, layers x (key, value) x heads x head size]."""
        return self.prefix_encoder[0].weight

    def _get_past_key_values(self, batch_size: int):
        """Keys and values of this rank's heads for each layer, in the family's order of dimensions."""
        config = self.prefix_config
        shape = [config.num_prefix_tokens, 2 * config.num_hidden_layers, self.num_heads, self.head_dim]
        prefix = self.prefix_encoder(self.prefix_tokens)
        if self.model.config.tensor_parallel_degree > 1:
            group = fleet.get_hybrid_communicate_group().get_model_parallel_group()
            prefix = mp_ops._c_identity(prefix, group).reshape(shape).chunk(group.nranks, axis=2)[group.rank]
        else:
            prefix = prefix.reshape(shape)
        return self.postprocess_past_key_value(prefix.unsqueeze(0).expand([batch_size, *prefix.shape]))

    def _get_tensor_parallel_convert_actions(self, *args, **kwargs) -> dict:
        """For checkpoints: no tensor is divided."""
        return {}


def add_prefix(model, adapter_args, seed: int) -> PrefixModel:
    """The model with a prefix of small random numbers, all else frozen."""
    prefix = PrefixModel(model, prefix_config(model, adapter_args.num_prefix_tokens))
    initialise(prefix, seed)
    return prefix


def prefix_config(model, tokens: int) -> PrefixConfig:
    """That of a prefix of so many tokens for this model."""
    config = model.config.to_dict()
    return PrefixConfig(
        num_prefix_tokens=tokens,
        num_attention_heads=attention_heads(config),
        multi_query_group_num=key_value_heads(config),
        num_hidden_layers=layers(config),
        hidden_size=attention_heads(config) * head_size(config),
        dtype=str(model.config.dtype),
    )


def initialise(prefix: PrefixModel, seed: int) -> None:
    """Numbers that follow from the seed alone, so that every layout starts with the same.

    They are normal with variance 2 / (tokens + width), as paddlenlp draws them (XavierNormal).
    """
    tokens, width = prefix.table.shape
    values = np.random.RandomState(seed).normal(0, math.sqrt(2 / (tokens + width)), [tokens, width])
    prefix.table.set_value(paddle.to_tensor(values.astype("float32")).astype(prefix.table.dtype))


def describe(prefix: PrefixModel) -> str:
    """One line about what is trained."""
    config = prefix.prefix_config
    return (
        f"prefix: {config.num_prefix_tokens} keys and values of {prefix.num_heads} heads before the first token's, in "
        f"each of {config.num_hidden_layers} layers"
    )

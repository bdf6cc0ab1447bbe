"""Adding the requested adapter to a model, whose own weights are frozen.

LoRA: low-rank adapters beside frozen linear layers (arXiv 2106.09685), on paddlenlp's LoRAModel. Prefix tuning: trained
keys and values before those of the first token, in every layer (arXiv 2101.00190).
"""

import math
import re
import zlib

import numpy as np
import paddle
import paddlenlp.peft.prefix as upstream
from paddle.distributed import fleet
from paddle.distributed.fleet.layers.mpu import mp_ops
from paddlenlp.peft import LoRAConfig, LoRAModel, PrefixConfig, PrefixModelForCausalLM

from data_tools.formats.plural import plural
from launch.adapters.dora import DoraConfig, make_lora
from launch.adapters.lora_files import TOKEN_ROWS
from launch.adapters.quantization import Format
from launch.adapters.quantized_layers import use_quantized
from launch.adapters.token_rows import RowsConfig, add_rows, use_rows
from launch.families.lora_targets import lora_targets
from launch.families.parameters import SCORE, attention_heads, gives_scores, head_size, key_value_heads, layers
from launch.families.registry import family_of_config

# PaddleNLP's default of --lora_alpha beside --rslora (llm/run_finetune.py); 2 r without.
RSLORA_ALPHA = 4


def add_lora(model, model_args, adapter_args, seed: int) -> LoRAModel:
    """Return the model with adapters that change nothing yet; all other tensors are frozen.

    Raises:
        UserError: If a target is no linear layer of the model's family.
    """
    rank, requested = adapter_args.lora_rank, adapter_args.lora_target_modules or []
    # By PiSSA's paper the product counts once.
    alpha = rank if adapter_args.pissa else RSLORA_ALPHA if adapter_args.rslora else 2 * rank
    if ids := list(dict.fromkeys(adapter_args.trainable_token_indices or [])):
        add_rows(model, ids)
    config = (DoraConfig if adapter_args.dora else RowsConfig if ids else LoRAConfig)(
        target_modules=[rf".*\.{layer}" for layer in lora_targets(model.config.to_dict(), requested)],
        r=rank,
        lora_alpha=adapter_args.lora_alpha or alpha,
        lora_dropout=adapter_args.lora_dropout,
        rslora=adapter_args.rslora,
        lora_plus_scale=adapter_args.lora_plus_scale,
        tensor_parallel_degree=model.config.tensor_parallel_degree,
        dtype=str(model.config.dtype),
        base_model_name_or_path=model_args.model_name_or_path,
        trainable_modules=trained_whole(model),
    )
    if isinstance(config, RowsConfig):
        config.trainable_token_indices = ids
    lora = make_lora(model, config)
    if ids:
        use_rows(lora, ids)
    initialize_lora(lora, seed)
    return lora


def trained_whole(model) -> list[str] | None:
    """Return patterns of what is trained beside LoRA, for LoRAConfig: a reward model's score, rows of tokens."""
    score = [re.escape(SCORE)] if gives_scores(model.config.to_dict()) else []
    rows = [rf".*\.{TOKEN_ROWS}"] if any(hasattr(layer, TOKEN_ROWS) for layer in model.sublayers()) else []
    return [*score, *rows] or None


def initialize_lora(lora: LoRAModel, seed: int) -> None:
    """Set every lora_A to values that depend on seed and name alone, so that all layouts start with the same values.

    They are uniform within 1 / sqrt(inputs), as in paddlenlp (KaimingUniform, negative slope sqrt 5); a rank of tensor
    parallelism takes its part. lora_B are zero: the first loss is the base model's.
    """
    for name, parameter in lora.model.state_dict().items():
        if not name.endswith("lora_A"):
            continue
        is_sharded = bool(parameter.is_distributed)
        group = lora.model.config.tensor_parallel_degree if is_sharded else 1
        inputs, rank = parameter.shape[0] * group, parameter.shape[1]
        draw = np.random.RandomState([seed, zlib.crc32(name.encode())])
        values = draw.uniform(-1, 1, [inputs, rank]) / math.sqrt(inputs)
        if is_sharded:
            values = np.split(values, group)[lora.model.config.tensor_parallel_rank]
        parameter.set_value(paddle.to_tensor(values.astype("float32")).astype(parameter.dtype))


def describe_lora(lora: LoRAModel) -> str:
    """Return one line about what is trained in this process."""
    config = lora.lora_config
    assert config.target_modules is not None  # add_lora names them
    layers = ", ".join(pattern.rpartition(".")[2] for pattern in config.target_modules)
    variant = ", scaled by alpha / sqrt(r)" if config.rslora else ""
    if config.lora_plus_scale != 1:
        variant += f", learning rate of lora_B x {config.lora_plus_scale:g}"
    kind = "DoRA" if isinstance(config, DoraConfig) else "LoRA"
    line = f"{kind}: r {config.r}, alpha {config.lora_alpha:g}, dropout {config.lora_dropout:g}{variant} on {layers}"
    tokens = config.trainable_token_indices if isinstance(config, RowsConfig) else None
    return f"{line}, and the rows of {plural(len(tokens), 'token')}" if tokens else line


class PrefixModel(PrefixModelForCausalLM):
    """A frozen model with a prefix, whose table is whole on every rank of tensor parallelism.

    Upstream shards the table by tokens, and its output as one row of all layers: a rank's heads then get values of
    other layers than on one process, and the table the gradients of one rank's heads only. Here heads are sharded as
    in the model, and their gradients are summed.
    """

    def __init__(self, model, config: PrefixConfig):
        """Make the prefix. config.tensor_parallel_degree must be -1: upstream then makes a whole table."""
        family = family_of_config(model.config.to_dict())
        assert family.prefix_postprocess is not None  # else the run was refused
        super().__init__(model, config, getattr(upstream, family.prefix_postprocess))
        config.tensor_parallel_degree = -1  # the model's now

    @property
    def table(self) -> paddle.Tensor:
        """The trained parameter: [tokens, layers x (key, value) x heads x head size]."""
        return self.prefix_encoder[0].weight

    def keys_and_values(self) -> paddle.Tensor:
        """Return keys and values of this rank's heads, [tokens, 2 x layers, heads, head size].

        Keys of all layers come before their values.
        """
        config = self.prefix_config
        assert config.num_hidden_layers is not None
        shape = [config.num_prefix_tokens, 2 * config.num_hidden_layers, self.num_heads, self.head_dim]
        prefix = self.prefix_encoder(self.prefix_tokens)
        if self.model.config.tensor_parallel_degree > 1:
            group = fleet.get_hybrid_communicate_group().get_model_parallel_group()
            prefix = mp_ops._c_identity(prefix, group)
            assert prefix is not None  # this rank is in the group
            return prefix.reshape(shape).chunk(group.nranks, axis=2)[group.rank]
        return prefix.reshape(shape)

    def _get_past_key_values(self, batch_size: int):
        """Return keys and values of this rank's heads for each layer, in the family's order of dimensions."""
        postprocess, prefix = self.postprocess_past_key_value, self.keys_and_values()
        assert postprocess is not None
        return postprocess(prefix.unsqueeze(0).expand([batch_size, *prefix.shape]))

    def _get_tensor_parallel_convert_actions(self, *args, **kwargs) -> dict:
        """Return no action for checkpoints: no tensor is sharded."""
        return {}


def add_prefix(model, adapter_args, seed: int) -> PrefixModel:
    """Return the model with a prefix of small random numbers; all other tensors are frozen."""
    prefix = PrefixModel(model, prefix_config(model, adapter_args.num_prefix_tokens))
    # The values depend on the seed alone, so that all layouts start with the same; their variance is paddlenlp's
    # (XavierNormal): 2 / (tokens + width).
    tokens, width = prefix.table.shape
    values = np.random.RandomState(seed).normal(0, math.sqrt(2 / (tokens + width)), [tokens, width])
    prefix.table.set_value(paddle.to_tensor(values.astype("float32")).astype(prefix.table.dtype))
    return prefix


def prefix_config(model, tokens: int) -> PrefixConfig:
    """Return the configuration of a prefix with `tokens` tokens for a model."""
    config = model.config.to_dict()
    return PrefixConfig(
        num_prefix_tokens=tokens,
        num_attention_heads=attention_heads(config),
        multi_query_group_num=key_value_heads(config),
        num_hidden_layers=layers(config),
        hidden_size=attention_heads(config) * head_size(config),
        dtype=str(model.config.dtype),
    )


def describe_prefix(prefix: PrefixModel) -> str:
    """Return one line about what is trained."""
    config = prefix.prefix_config
    return (
        f"prefix: {config.num_prefix_tokens} keys and values of {prefix.num_heads} heads before the first token's, in "
        f"each of {config.num_hidden_layers} layers"
    )


def add_adapter(model, model_args, adapter_args, seed: int):
    """Return (the model with its adapter, lines about it); the model as it is where no adapter is requested.

    Raises:
        UserError: If the adapter does not fit the model's family.
    """
    adapter, lines = model, []
    if adapter_args.lora:
        adapter = add_lora(model, model_args, adapter_args, seed)
        lines.append(describe_lora(adapter))
    elif adapter_args.prefix_tuning:
        adapter = add_prefix(model, adapter_args, seed)
        lines.append(describe_prefix(adapter))
    base = base_format(adapter_args)
    if base:
        lines.append(use_quantized(model, base))
    return adapter, lines


def base_format(adapter_args) -> Format | None:
    """Return the format of the frozen weights; None where they are not quantized."""
    if not adapter_args.weight_quantize_algo:
        return None
    return Format(
        algo=adapter_args.weight_quantize_algo,
        block=adapter_args.weight_blocksize,
        double_quant=adapter_args.weight_double_quant,
        double_block=adapter_args.weight_double_quant_block_size,
        head=bool(adapter_args.quantize_head),
    )

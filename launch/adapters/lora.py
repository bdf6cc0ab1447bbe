"""LoRA: low-rank adapters beside frozen linear layers (arXiv 2106.09685), on paddlenlp's LoRAModel."""

import math
import zlib

import numpy as np
import paddle
from paddlenlp.peft import LoRAConfig, LoRAModel

from launch.errors import UserError
from launch.families.registry import family_of_config


def add_lora(model, model_args, adapter_args, seed: int) -> LoRAModel:
    """The model with adapters that change nothing yet, all else frozen.

    Raises UserError where a target is no linear layer of the model's family.
    """
    config = LoRAConfig(
        target_modules=target_patterns(model.config.to_dict(), adapter_args.lora_target_modules),
        r=adapter_args.lora_rank,
        lora_alpha=adapter_args.lora_alpha or 2 * adapter_args.lora_rank,
        lora_dropout=adapter_args.lora_dropout,
        tensor_parallel_degree=model.config.tensor_parallel_degree,
        dtype=str(model.config.dtype),
        base_model_name_or_path=model_args.model_name_or_path,
    )
    lora = LoRAModel(model, config)
    initialise(lora, seed)
    return lora


def target_patterns(config: dict, wanted: list[str] | None) -> list[str]:
    """Patterns of whole layer names, as LoRAConfig takes them."""
    layers = family_of_config(config).linear_layers
    unknown = sorted(set(wanted or []) - set(layers))
    if unknown:
        raise UserError(f"--lora_target_modules: found {', '.join(unknown)}, allowed: {', '.join(layers)}.")
    return [rf".*\.{layer}" for layer in wanted or layers]


def initialise(lora: LoRAModel, seed: int) -> None:
    """Give every lora_A the values that follow from seed and name alone, so that every layout starts with the same.

    They are uniform within 1 / sqrt(inputs), as paddlenlp draws them (KaimingUniform, negative slope sqrt 5), of
    which a rank of tensor parallelism keeps its part. lora_B are zero: the first loss is the base model's.
    """
    for name, parameter in lora.model.state_dict().items():
        if not name.endswith("lora_A"):
            continue
        divided = bool(parameter.is_distributed)
        group = lora.model.config.tensor_parallel_degree if divided else 1
        inputs, rank = parameter.shape[0] * group, parameter.shape[1]
        draw = np.random.RandomState([seed, zlib.crc32(name.encode())])
        values = draw.uniform(-1, 1, [inputs, rank]) / math.sqrt(inputs)
        if divided:
            values = np.split(values, group)[lora.model.config.tensor_parallel_rank]
        parameter.set_value(paddle.to_tensor(values.astype("float32")).astype(parameter.dtype))


def describe(lora: LoRAModel) -> str:
    """One line about what is trained in this process."""
    config = lora.lora_config
    layers = ", ".join(pattern.rpartition(".")[2] for pattern in config.target_modules)
    return f"LoRA: r {config.r}, alpha {config.lora_alpha:g}, dropout {config.lora_dropout:g} on {layers}"

"""Adapters from disk, as launch/adapters/save.py writes them, onto the model that they belong to.

    model = load_adapter(model, "checkpoints/llama-7b-lora")

A directory with lora_config.json holds a LoRA, one with prefix_config.json a prefix. Each loads into every layout in
which it can be trained, whatever layout it was trained in, and takes the model's dtype. What comes back is called as
the model is: model(input_ids=...), model.generate(input_ids=..., attention_mask=..., ...), by keywords.
"""

import warnings
from pathlib import Path

import paddle
from paddlenlp.peft import LoRAConfig, LoRAModel, PrefixConfig
from paddlenlp.utils.env import LORA_CONFIG_NAME, PREFIX_CONFIG_NAME, SAFE_PEFT_WEIGHTS_INDEX_NAME

from launch.adapters.prefix import PrefixModel, prefix_config
from launch.checkpoint.fit import Misfits, difference
from launch.checkpoint.safetensors_reader import read_header
from launch.checkpoint.stored_tensor import StoredTensor
from launch.checkpoint.weight_files import read_indexed
from launch.errors import UserError

ADAPTERS = (LoRAModel, PrefixModel)


def load_adapter(model, directory: Path | str) -> LoRAModel | PrefixModel:
    """The model with the adapter of a directory, all else frozen.

    Raises UserError where the directory holds no adapter, or one that does not fit the model.
    """
    directory = Path(directory)
    if (directory / LORA_CONFIG_NAME).is_file():
        return _load_lora(model, directory)
    if (directory / PREFIX_CONFIG_NAME).is_file():
        return _load_prefix(model, directory)
    raise UserError(f"{directory}: no adapter: neither {LORA_CONFIG_NAME} nor {PREFIX_CONFIG_NAME} is there.")


def _load_lora(model, directory: Path) -> LoRAModel:
    config = LoRAConfig.from_pretrained(str(directory))
    config.dtype = str(model.config.dtype)
    with warnings.catch_warnings():  # upstream's about tensors of other shapes, which are checked here
        warnings.simplefilter("ignore")
        try:
            lora = LoRAModel.from_pretrained(model, str(directory), lora_config=config)
        except ValueError as error:  # layers that the adapter has no weights for
            raise UserError(f"{directory}: this adapter does not fit the model: {error}") from error
    _check_shapes(directory, lora.get_trainable_state_dict(), model.config)
    return lora


def _load_prefix(model, directory: Path) -> PrefixModel:
    tokens = PrefixConfig.from_pretrained(str(directory)).num_prefix_tokens
    prefix = PrefixModel(model, prefix_config(model, tokens))
    stored = _check_shapes(directory, prefix.prefix_encoder.state_dict(), model.config)
    for name, parameter in prefix.prefix_encoder.state_dict().items():
        parameter.set_value(paddle.to_tensor(stored[name].open()).astype(parameter.dtype))
    return prefix


def _check_shapes(directory: Path, parameters: dict, config) -> dict[str, StoredTensor]:
    """The stored tensors, if those of `parameters` (of this rank and stage) are among them in their whole shapes."""
    stored = read_indexed(directory / SAFE_PEFT_WEIGHTS_INDEX_NAME, lambda file: read_header(file)[0])
    misfits = Misfits(missing=parameters.keys() - stored.keys())
    for name in parameters.keys() & stored.keys():
        shape = list(parameters[name].shape)
        if config.tensor_parallel_degree > 1 and parameters[name].is_distributed:
            shape[parameters[name].split_axis] *= config.tensor_parallel_degree
        if list(stored[name].shape) != shape:
            misfits.different.add(difference(name, str(list(stored[name].shape)), str(shape)))
    if misfits:
        raise UserError(f"{directory}: this adapter does not fit the model: {misfits}")
    return stored

"""Adapters from disk, as launch/adapters/save.py writes them, onto the model that they belong to.

    model = load_adapter(model, "checkpoints/llama-7b-lora")

A directory with lora_config.json holds a LoRA, one with prefix_config.json a prefix. Each loads into every layout in
which it can be trained, whatever layout it was trained in, and takes the model's dtype. What comes back is called as
the model is: model(input_ids=...), model.generate(input_ids=..., attention_mask=..., ...), by keywords.
"""

from pathlib import Path

import paddle
from paddlenlp.peft import LoRAConfig, LoRAModel, PrefixConfig
from paddlenlp.utils.env import LORA_CONFIG_NAME, PREFIX_CONFIG_NAME, SAFE_PEFT_WEIGHTS_INDEX_NAME

from launch.adapters.prefix import PrefixModel
from launch.checkpoint.fit import Misfits, difference
from launch.checkpoint.safetensors_reader import read_header
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
    try:
        return LoRAModel.from_pretrained(model, str(directory), lora_config=config)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{directory}: this adapter does not fit the model: {error}") from error


def _load_prefix(model, directory: Path) -> PrefixModel:
    config = PrefixConfig.from_pretrained(str(directory))
    config.dtype = str(model.config.dtype)
    prefix = PrefixModel(model, config)
    expected = {name: tensor.shape for name, tensor in prefix.prefix_encoder.state_dict().items()}
    stored = read_indexed(directory / SAFE_PEFT_WEIGHTS_INDEX_NAME, lambda file: read_header(file)[0])
    misfits = Misfits(missing=expected.keys() - stored.keys(), extra=stored.keys() - expected.keys())
    for name in expected.keys() & stored.keys():
        if list(stored[name].shape) != expected[name]:
            misfits.different.add(difference(name, str(list(stored[name].shape)), str(expected[name])))
    if misfits:
        raise UserError(f"{directory}: this adapter does not fit the model: {misfits}")
    values = paddle.to_tensor(stored["0.weight"].open())
    prefix.table.set_value(values.astype(prefix.table.dtype))
    return prefix

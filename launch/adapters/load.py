"""Adapters from disk, as launch/adapters/save.py writes them, onto the model that they belong to.

    model = load_adapter(model, "checkpoints/llama-7b-lora")

A directory with lora_config.json holds a LoRA, one with prefix_config.json a prefix. Each loads into every layout in
which it can be trained, whatever layout it was trained in, and takes the model's dtype. What comes back is called as
the model is: model(input_ids=...), model.generate(input_ids=..., attention_mask=..., ...), by keywords.

An adapter may come from anywhere, so its files are read by our own readers alone: paddlenlp's from_pretrained unpickles
.pdparams files, which runs what they hold.
"""

from collections.abc import Callable
from pathlib import Path

from paddlenlp.peft import LoRAConfig, LoRAModel
from paddlenlp.utils.env import LORA_CONFIG_NAME, PREFIX_CONFIG_NAME, SAFE_PEFT_WEIGHTS_INDEX_NAME

from launch.adapters.lora_files import read_lora, target_modules
from launch.adapters.prefix import PrefixModel, prefix_config
from launch.checkpoint.read import Fill, Plan, agree, run_fills
from launch.checkpoint.safetensors_reader import read_header
from launch.checkpoint.stored_tensor import StoredTensor
from launch.checkpoint.weight_files import read_indexed
from launch.errors import UserError
from launch.families.named_configs import read_config

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
    stored = read_lora(directory)
    config = LoRAConfig(
        r=stored.config["r"],
        lora_alpha=stored.config["lora_alpha"],
        rslora=stored.config.get("rslora") is True,
        target_modules=target_modules(stored.config, directory / LORA_CONFIG_NAME),
        tensor_parallel_degree=model.config.tensor_parallel_degree,
        dtype=str(model.config.dtype),
    )
    lora = LoRAModel(model, config)
    parts = {}
    if config.tensor_parallel_degree > 1:
        parts = lora._get_tensor_parallel_convert_actions(list(stored.tensors), is_split=True)
    _fill(directory, lora.get_trainable_state_dict(), stored.tensors, parts)
    return lora


def _load_prefix(model, directory: Path) -> PrefixModel:
    path = directory / PREFIX_CONFIG_NAME
    tokens = read_config(path, "a prefix").get("num_prefix_tokens")
    if type(tokens) is not int or tokens < 1:
        raise UserError(f"{path}: num_prefix_tokens: found {tokens!r}, allowed: a whole number from 1.")
    stored = read_indexed(directory / SAFE_PEFT_WEIGHTS_INDEX_NAME, lambda file: read_header(file)[0])
    prefix = PrefixModel(model, prefix_config(model, tokens))
    _fill(directory, prefix.prefix_encoder.state_dict(), stored, {})
    return prefix


def _fill(directory: Path, parameters: dict, stored: dict[str, StoredTensor], parts: dict[str, Callable]) -> None:
    """Give the parameters of this rank their stored values. parts: from a whole tensor to this rank's part, by name."""
    plan = Plan(stored=set(stored), known=set(parameters), missing=parameters.keys() - stored.keys())
    for name in parameters.keys() & stored.keys():
        plan.fills.append(Fill(name, parameters[name], stored[name], parts.get(name, lambda array: array)))
    agree(plan, lambda misfits: f"{directory}: this adapter does not fit the model: {misfits}")
    run_fills(directory, plan.fills)

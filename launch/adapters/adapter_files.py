"""Adapters on disk: their weights in safetensors and their configuration, without their base model.

    save_adapter(adapter, "checkpoints/llama-7b-lora", training_args)
    model = load_adapter(model, "checkpoints/llama-7b-lora")

lora_config.json in a directory marks a LoRA, prefix_config.json a prefix. Tensors are whole, in float32, under their
names on one process. Each pipeline stage writes a file of its own; an index names the file of each tensor. An adapter
can be loaded into every layout that can train it, independent of the layout it was trained in, and takes the model's
dtype. The loaded model is called as the model is: model(input_ids=...),
model.generate(input_ids=..., attention_mask=..., ...), by keywords.

An adapter may come from anywhere, so its files are read by our own readers alone: paddlenlp's from_pretrained unpickles
.pdparams files, which runs what they hold.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from paddlenlp.peft import LoRAConfig, LoRAModel
from paddlenlp.utils.env import LORA_CONFIG_NAME, PREFIX_CONFIG_NAME, SAFE_PEFT_WEIGHTS_INDEX_NAME
from safetensors.numpy import load_file, save

from launch.adapters.add import PrefixModel, prefix_config, trained_whole
from launch.adapters.dora import DoraConfig, make_lora
from launch.adapters.lora_files import TOKEN_IDS, LoraFiles, read_lora, require_adapter, target_modules
from launch.adapters.token_rows import RowsConfig, write_rows
from launch.checkpoint.local_tensors import local_tensors, parts_of_ranks, whole_values
from launch.checkpoint.model_loader import Fill, Plan, agree, run_fills
from launch.checkpoint.ranks import gather
from launch.checkpoint.safetensors_file import read_header
from launch.checkpoint.stored_tensor import StoredTensor, convert
from launch.checkpoint.weight_files import checked_manifest, read_indexed
from launch.errors import UserError
from launch.families.named_configs import read_config

ADAPTERS = (LoRAModel, PrefixModel)


def load_adapter(model, directory: Path | str) -> LoRAModel | PrefixModel:
    """Return the model with the adapter of a directory; all other tensors are frozen.

    Raises:
        UserError: If the directory holds no adapter, or one that does not fit the model.
    """
    directory = Path(directory)
    require_adapter(directory)
    is_lora = (directory / LORA_CONFIG_NAME).is_file()
    return _load_lora(model, directory) if is_lora else _load_prefix(model, directory)


def _load_lora(model, directory: Path) -> LoRAModel:
    stored = read_lora(directory)
    config = (DoraConfig if stored.is_dora else RowsConfig if stored.rows else LoRAConfig)(
        r=stored.config["r"],
        lora_alpha=stored.config["lora_alpha"],
        rslora=stored.config.get("rslora") is True,
        target_modules=target_modules(stored.config, directory / LORA_CONFIG_NAME),
        tensor_parallel_degree=model.config.tensor_parallel_degree,
        dtype=str(model.config.dtype),
        trainable_modules=trained_whole(model),
    )
    lora = make_lora(model, config)
    fill_lora(lora, stored)
    if stored.rows:
        setattr(lora.lora_config, TOKEN_IDS, stored.token_ids)
        write_rows(model, stored)
    return lora


def fill_lora(lora: LoRAModel, files: LoraFiles) -> None:
    """Fill adapters from the files of one with the same layers.

    Raises:
        UserError: If it has others.
    """
    stored, parts = {name: tensor for name, tensor in files.tensors.items() if name not in files.rows}, {}
    if lora.lora_config.tensor_parallel_degree > 1:
        parts = lora._get_tensor_parallel_convert_actions(list(stored), is_split=True)
    _fill(files.directory, lora.get_trainable_state_dict(), stored, parts)


def _load_prefix(model, directory: Path) -> PrefixModel:
    path = directory / PREFIX_CONFIG_NAME
    tokens = read_config(path, "a prefix").get("num_prefix_tokens")
    if type(tokens) is not int or tokens < 1:
        raise UserError(f"{path}: num_prefix_tokens: found {tokens!r}, allowed: a whole number from 1.")
    checked_manifest(directory, (0, 1))
    stored = read_indexed(directory / SAFE_PEFT_WEIGHTS_INDEX_NAME, lambda file: read_header(file)[0])
    prefix = PrefixModel(model, prefix_config(model, tokens))
    _fill(directory, prefix.prefix_encoder.state_dict(), stored, {})
    return prefix


def _fill(directory: Path, parameters: dict, stored: dict[str, StoredTensor], parts: dict[str, Callable]) -> None:
    """Fill the parameters of this rank. parts: functions from a whole tensor to this rank's part, by name."""
    plan = Plan(stored=set(stored), known=set(parameters), missing=parameters.keys() - stored.keys())
    for name in parameters.keys() & stored.keys():
        plan.fills.append(Fill(name, parameters[name], stored[name], parts.get(name, lambda array: array)))
    agree(plan, lambda misfits: f"{directory}: this adapter does not fit the model: {misfits}")
    run_fills(directory, plan.fills)


def save_adapter(adapter: LoRAModel | PrefixModel, directory: Path | str, training_args) -> None:
    """Write the adapter; to be called by all ranks.

    Raises:
        UserError: On all ranks where it cannot be written.
        RuntimeError: If it reads back differently.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    stages = max(training_args.pipeline_parallel_degree, 1)
    own_tensors = local_tensors(adapter, None, training_args)  # of this stage; written whole, in float32
    parts = parts_of_ranks(own_tensors)
    tensors = {tensor.key: convert(whole_values(tensor, parts), tensor.dtype, "float32") for tensor in own_tensors}
    file = directory / f"peft_model-{training_args.pipeline_parallel_rank + 1:05d}-of-{stages:05d}.safetensors"
    fault = None
    if training_args.tensor_parallel_rank == training_args.dataset_rank == 0:
        fault = _written(file, lambda: file.write_bytes(save(tensors, metadata={"format": "np"})))
        if fault is None:
            _compare(file, tensors)
    files = gather(({name: file.name for name in tensors}, fault))
    if training_args.process_index == 0:
        places = {name: file for part, _ in files for name, file in part.items()}
        fault = fault or _written(directory, lambda: _write_small(adapter, directory, places))
    faults = [fault for fault in (*(fault for _, fault in files), *gather(fault)) if fault]
    if faults:
        raise UserError(f"the adapter could not be written: {faults[0]}. Free the disk and start again.")


def _written(path: Path, write: Callable[[], object]) -> str | None:
    """Write a file and return the error, None where it was written."""
    try:
        write()
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return None


def _write_small(adapter: LoRAModel | PrefixModel, directory: Path, places: dict[str, str]) -> None:
    """Write index and configuration. places: the file of each tensor."""
    index = {"metadata": {}, "weight_map": dict(sorted(places.items()))}
    (directory / SAFE_PEFT_WEIGHTS_INDEX_NAME).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    config = adapter.prefix_config if isinstance(adapter, PrefixModel) else adapter.lora_config
    config.save_pretrained(str(directory))


def _compare(file: Path, tensors: dict[str, np.ndarray]) -> None:
    stored = load_file(file)
    different = [name for name in tensors if name not in stored or not np.array_equal(stored[name], tensors[name])]
    if different or stored.keys() != tensors.keys():
        raise RuntimeError(f"{file} does not hold what was trained: {', '.join(different) or 'other names'}")

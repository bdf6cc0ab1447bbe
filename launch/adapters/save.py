"""Adapters on disk: their weights in safetensors and their configuration, nothing of the model they belong to.

launch/adapters/load.py reads such a directory in every layout: tensors are whole, under the names that they have in a
model on one process, in float32. Each pipeline stage writes a file of its own; an index says which holds what.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from paddlenlp.peft import LoRAModel
from paddlenlp.utils.env import SAFE_PEFT_WEIGHTS_INDEX_NAME
from safetensors.numpy import load_file, save

from launch.adapters.prefix import PrefixModel
from launch.checkpoint.dtypes import convert
from launch.checkpoint.ranks import gather
from launch.checkpoint.state.tensors import held_tensors
from launch.checkpoint.state.whole import parts_of_ranks, whole_values
from launch.errors import UserError


def save_adapter(adapter: LoRAModel | PrefixModel, directory: Path | str, training_args) -> None:
    """Write the adapter; to be called by all ranks.

    Raises UserError on all ranks where it cannot be written, RuntimeError where it reads back differently.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    stages = max(training_args.pipeline_parallel_degree, 1)
    tensors = whole_tensors(adapter, training_args)
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
    """Why something could not be written, None where it was."""
    try:
        write()
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return None


def _write_small(adapter: LoRAModel | PrefixModel, directory: Path, places: dict[str, str]) -> None:
    """All but the weights. places: the file of each tensor."""
    index = {"metadata": {}, "weight_map": dict(sorted(places.items()))}
    (directory / SAFE_PEFT_WEIGHTS_INDEX_NAME).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    config = adapter.prefix_config if isinstance(adapter, PrefixModel) else adapter.lora_config
    config.save_pretrained(str(directory))


def whole_tensors(adapter: LoRAModel | PrefixModel, training_args) -> dict[str, np.ndarray]:
    """The trained tensors of this rank's stage, float32; what tensor parallelism or stage 3 divides is put together."""
    held = held_tensors(adapter, None, training_args)
    parts = parts_of_ranks(held)
    return {one.key: convert(whole_values(one, parts), one.dtype, "float32") for one in held}


def _compare(file: Path, tensors: dict[str, np.ndarray]) -> None:
    stored = load_file(file)
    different = [name for name in tensors if not np.array_equal(stored.get(name), tensors[name])]
    if different or stored.keys() != tensors.keys():
        raise RuntimeError(f"{file} does not hold what was trained: {', '.join(different) or 'other names'}")

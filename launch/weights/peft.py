"""LoRA adapters from our format to that of Hugging Face's PEFT, which scales by alpha / r as we do, and back.

rsLoRA's alpha / sqrt(r) is use_rslora there. A LoRA that began by PiSSA is a plain one in both formats.

Names there: base_model.model.<the layer's name in the Hugging Face model>.lora_A.weight [r, inputs] and .lora_B.weight
[outputs, r], each ours transposed (peft/utils/save_and_load.py).
"""

import json
from pathlib import Path

import numpy as np

from launch.adapters import lora_files
from launch.adapters.lora_files import LoraFiles, read_lora, require_lora
from launch.checkpoint.safetensors_file import SINGLE, TORCH, NewTensor, read_header, write_safetensors
from launch.checkpoint.stored_tensor import StoredTensor
from launch.checkpoint.weight_files import Misfits
from launch.errors import UserError
from launch.families.named_configs import load_config, read_config
from launch.families.parameters import LINEAR, SCORE
from launch.families.registry import parameters
from launch.weights.conversion import their_name
from launch.weights.whole import written_whole

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
OUR_WEIGHTS = "peft_model-00001-of-00001.safetensors"
ONE_FILE = 1 << 62  # bytes
# Settings of PEFT that make more, or something else, of an adapter than scaling * A @ B.
PLAIN = {
    "peft_type": "LORA",
    "bias": "none",
    "use_dora": False,
    "fan_in_fan_out": False,
    "modules_to_save": None,
    "rank_pattern": {},
    "alpha_pattern": {},
}


def export_adapter(source: Path, base: Path | None, target: Path, base_model_name: str | None = None) -> int:
    """Write `target` from an adapter's directory; the number of tensors.

    base: our directory or name of its model, default as the adapter names it. base_model_name: where PEFT finds the
    model in Hugging Face's format, a directory or a name on its hub; default: base.

    Raises:
        UserError: If source is no adapter, or one that PEFT cannot express. Nothing is left behind.
    """
    lora = read_lora(source)
    name = str(base or lora.config.get("base_model_name_or_path") or "")
    config = load_config(name)
    if config.get("alibi"):
        raise UserError(
            "the base is a Baichuan-13B, whose Hugging Face model has query, key and value in one matrix: an adapter "
            "of ours has one pair for each. Join them first: make merge, then export the merged model."
        )
    tensors = []
    for layer, pair in lora.layers.items():
        theirs = _their_layer(layer, config)
        tensors += [_transposed(f"{theirs}.lora_A.weight", pair.a), _transposed(f"{theirs}.lora_B.weight", pair.b)]
    if lora.score:
        tensors.append(_transposed(f"base_model.model.{SCORE}", lora.score))
    with written_whole(target) as directory:
        write_safetensors(directory, tensors, ONE_FILE, lambda _: None, TORCH)
        (directory / SINGLE).rename(directory / WEIGHTS)
        _write_json(directory / CONFIG, _peft_config(lora, config, base_model_name or name))
    return len(tensors)


def import_adapter(source: Path, base: Path, target: Path) -> int:
    """Write `target`, an adapter of ours, from PEFT's; the number of tensors. base: our directory of its model.

    Raises:
        UserError: If source is no LoRA of the base, or one with more than plain LoRA. Nothing is left behind.
    """
    theirs = _read_peft_config(source / CONFIG)
    config = load_config(str(base))
    linear = [parameter.name.removesuffix(".weight") for parameter in parameters(config) if parameter.kind == LINEAR]
    layers = {_their_layer(layer, config): layer for layer in linear}
    stored, metadata = read_header(source / WEIGHTS)
    misfits = Misfits()
    tensors = []
    for name, tensor in stored.items():
        layer, _, kind = name.removesuffix(".weight").rpartition(".")
        if layer in layers and kind in ("lora_A", "lora_B"):
            tensors.append(_transposed(f"{layers[layer]}.{kind}", tensor))
        else:
            misfits.extra.add(name)
    if misfits:
        raise UserError(f"{source} is no LoRA adapter of {base}: {misfits}.")
    with written_whole(target) as directory:
        write_safetensors(directory, tensors, ONE_FILE, lambda _: None)
        (directory / SINGLE).rename(directory / OUR_WEIGHTS)
        index = {"metadata": {}, "weight_map": {tensor.name: OUR_WEIGHTS for tensor in tensors}}
        _write_json(directory / lora_files.INDEX, index)
        modules = sorted({tensor.name.split(".")[-2] for tensor in tensors})
        _write_json(directory / lora_files.CONFIG, _our_config(theirs, modules, base))
        read_lora(directory)  # pairs, ranks and shapes
    return len(tensors)


def _read_peft_config(path: Path) -> dict:
    config = read_config(path, "a PEFT adapter")
    for key, allowed in PLAIN.items():
        if (config.get(key) or allowed) != allowed:
            raise UserError(f"{path}: {key}: found {config[key]!r}, allowed: {allowed!r}: plain LoRA.")
    require_lora(config, path)
    return config


def _our_config(theirs: dict, modules: list[str], base: Path) -> dict:
    """Return the configuration that paddlenlp's LoRAConfig reads."""
    return {
        "base_model_name_or_path": str(base),
        "dtype": "float32",
        "lora_alpha": theirs["lora_alpha"],
        "lora_dropout": theirs.get("lora_dropout", 0.0),
        "r": theirs["r"],
        "rslora": theirs.get("use_rslora") is True,
        "target_modules": [rf".*\.{module}" for module in modules],
        "tensor_parallel_degree": -1,
    }


def _their_layer(layer: str, config: dict) -> str:
    return "base_model.model." + their_name(f"{layer}.weight", config["model_type"]).removesuffix(".weight")


def _transposed(name: str, stored: StoredTensor) -> NewTensor:
    shape = stored.shape[::-1]
    return NewTensor(name, stored.dtype, shape, lambda: iter([np.ascontiguousarray(stored.open().T)]))


def _peft_config(lora: LoraFiles, config: dict, base: str) -> dict:
    layers = sorted({_their_layer(layer, config).rpartition(".")[2] for layer in lora.layers})
    rslora = lora.config.get("rslora") is True
    return {
        "peft_type": "LORA",
        "task_type": "SEQ_CLS" if lora.score else "CAUSAL_LM",
        "modules_to_save": ["score"] if lora.score else None,
        "base_model_name_or_path": base,
        "r": lora.config["r"],
        "lora_alpha": lora.config["lora_alpha"] if rslora else lora.scaling * lora.config["r"],
        "use_rslora": rslora,
        "lora_dropout": lora.config.get("lora_dropout", 0.0),
        "target_modules": layers,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def _write_json(path: Path, values: dict) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")

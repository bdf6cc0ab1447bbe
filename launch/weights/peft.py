"""A LoRA adapter of ours in the format of Hugging Face's PEFT, which scales by alpha / r as we do.

Names there: base_model.model.<the layer's name in the Hugging Face model>.lora_A.weight [r, inputs] and .lora_B.weight
[outputs, r], each ours transposed (peft/utils/save_and_load.py).
"""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np

from launch.adapters.lora_files import Lora, read_lora
from launch.checkpoint.stored_tensor import StoredTensor
from launch.errors import UserError
from launch.models.named_configs import load_config
from launch.weights.names import their_name
from launch.weights.safetensors_writer import TORCH, NewTensor, write_safetensors

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def export_adapter(source: Path, base: Path | None, target: Path) -> int:
    """Write `target` from an adapter's directory; the number of tensors. base: default as the adapter names it.

    Raises UserError, and leaves nothing behind, where source is no adapter, or one that PEFT cannot express.
    """
    lora = read_lora(source)
    if target.exists():
        raise UserError(f"{target}: is there already. Remove it, or name another directory.")
    name = str(base or lora.config.get("base_model_name_or_path") or "")
    config = load_config(name)
    if config.get("alibi"):
        raise UserError(
            "the base is a Baichuan-13B, whose Hugging Face model has query, key and value in one matrix: an adapter "
            "of ours has one pair for each. Join them first: make merge, then export the merged model."
        )
    tensors = [
        new
        for layer, pair in lora.layers.items()
        for new in (
            _transposed(f"{_their_layer(layer, config)}.lora_A.weight", pair.a),
            _transposed(f"{_their_layer(layer, config)}.lora_B.weight", pair.b),
        )
    ]
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        write_safetensors(unfinished, tensors, 1 << 62, lambda _: None, TORCH)
        (unfinished / "model.safetensors").rename(unfinished / WEIGHTS)
        text = json.dumps(_peft_config(lora, config, name), indent=2)
        (unfinished / CONFIG).write_text(text + "\n", encoding="utf-8")
        unfinished.chmod(0o755)
        unfinished.rename(target)
    except OSError as error:
        raise UserError(f"{target}: cannot be written: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return len(tensors)


def _their_layer(layer: str, config: dict) -> str:
    return "base_model.model." + their_name(f"{layer}.weight", config["model_type"]).removesuffix(".weight")


def _transposed(name: str, stored: StoredTensor) -> NewTensor:
    shape = stored.shape[::-1]
    return NewTensor(name, stored.dtype, shape, lambda: iter([np.ascontiguousarray(stored.open().T)]))


def _peft_config(lora: Lora, config: dict, base: str) -> dict:
    layers = sorted({_their_layer(layer, config).rpartition(".")[2] for layer in lora.layers})
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": lora.config["r"],
        "lora_alpha": lora.scaling * lora.config["r"],
        "lora_dropout": lora.config.get("lora_dropout", 0.0),
        "target_modules": layers,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }

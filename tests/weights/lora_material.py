"""A small model and a LoRA adapter on random numbers, as files, from NumPy alone; the memory of a process."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from launch.families.named_configs import load_config
from launch.families.parameters import HEAD, WORD
from launch.families.registry import family_of_config, parameters
from tests.store import ROOT

RANK, ALPHA = 3, 12
SIZES = {"vocab_size": 64, "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96}


def save_base(directory: Path, config: dict) -> dict[str, np.ndarray]:
    """config.json and model.safetensors of a model with this configuration, and a file beside; its tensors."""
    draw = np.random.default_rng(0)
    tensors = {
        one.name: draw.standard_normal(one.shape, np.float32) * np.float32(one.shape[0] ** -0.5)
        for one in parameters(config)
    }
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "tokenizer_config.json").write_text("{}")
    save_file(tensors, directory / "model.safetensors", metadata={"format": "np"})
    return tensors


def llama(**changes) -> dict:
    return load_config("llama-rehearsal") | SIZES | changes


def save_lora(
    directory: Path,
    config: dict,
    layers: tuple[str, ...] | None = None,
    dora: bool = False,
    tokens: tuple[int, ...] = (),
) -> dict[str, np.ndarray]:
    """An adapter of the model with this configuration in two files, as two pipeline stages write it; its tensors.

    layers: last words of the layers' names; None: all linear ones. tokens: whose rows are trained.
    """
    draw = np.random.default_rng(1)
    wanted = layers or family_of_config(config).linear_layers
    tensors = {}
    for one in parameters(config):
        layer = one.name.removesuffix(".weight")
        if layer != one.name and layer.rpartition(".")[2] in wanted:
            inputs, outputs = one.shape
            tensors[f"{layer}.lora_A"] = (draw.standard_normal((inputs, RANK)) * inputs**-0.5).astype(np.float32)
            tensors[f"{layer}.lora_B"] = (draw.standard_normal((RANK, outputs)) * 0.2).astype(np.float32)
            if dora:
                tensors[f"{layer}.lora_magnitude"] = (draw.standard_normal(outputs) * 0.2).astype(np.float32)
        elif tokens and one.kind in (WORD, HEAD):
            tensors[f"{layer}.token_rows"] = draw.standard_normal((len(tokens), config["hidden_size"]), np.float32)
    write_lora(directory, tensors, use_dora=dora, trainable_token_indices=list(tokens))
    return tensors


def write_lora(directory: Path, tensors: dict[str, np.ndarray], **changes) -> None:
    """The files of an adapter. changes: of its configuration."""
    directory.mkdir(parents=True, exist_ok=True)
    names, places = list(tensors), {}
    half = len(names) // 2
    for number, own in enumerate((names[:half], names[half:]), start=1):
        file = f"peft_model-{number:05d}-of-00002.safetensors"
        save_file({name: tensors[name] for name in own}, directory / file, metadata={"format": "np"})
        places |= dict.fromkeys(own, file)
    (directory / "peft_model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    targets = sorted({rf".*\.{name.split('.')[-2]}" for name in tensors if not name.endswith("token_rows")})
    config = {"r": RANK, "lora_alpha": ALPHA, "scaling": ALPHA / RANK, "target_modules": targets} | changes
    (directory / "lora_config.json").write_text(json.dumps(config))


def rename_float16(file: Path) -> None:
    """Make the float16 tensors of a safetensors file bfloat16, which safetensors.numpy cannot write: as long."""
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + size].decode().replace('"F16"', '"BF16"').rstrip()
    file.write_bytes(len(header).to_bytes(8, "little") + header.encode() + data[8 + size :])


def peak_bytes(program: str) -> int:
    """The largest memory of a process that runs a program, pages of mapped files among it.

    Linux's own high-water mark: getrusage's is handed on from the process that starts another.
    """
    code = f"{program}\nprint(open('/proc/self/status').read())"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return int(re.search(r"VmHWM:\s+(\d+) kB", result.stdout)[1]) * 1024

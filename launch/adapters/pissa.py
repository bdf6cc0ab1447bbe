"""PiSSA (arXiv 2404.02948): adapters that begin as the largest singular values of the weights, which keep the rest.

With U, S and V^T of a weight's r largest singular values, A0 = U sqrt(S) and B0 = sqrt(S) V^T, the frozen weight
becomes W - A0 B0: the first loss is the base model's. Where LoRA's scaling is not 1, S is divided by it, as in PEFT, so
that the product counts the same. paddlenlp computes this in the first forward pass. It does so in
a resumed run, too, and overwrites what was trained. Here it happens once: A0 and B0 are kept beside the checkpoints,
and a resumed run takes them from there. The trained adapter is written as a plain LoRA of rank 2 r, whose product is
A B - A0 B0, so that every program can use it with the base as it was.
"""

import json
import shutil
import time
from pathlib import Path

import numpy as np
import paddle
from paddlenlp.peft import LoRAModel
from paddlenlp.peft.lora.lora_layers import LoRALinear
from paddlenlp.utils.env import LORA_CONFIG_NAME
from safetensors.numpy import load_file, save

from launch.adapters.adapter_files import fill_lora, save_adapter
from launch.adapters.lora_files import PISSA_NEW, PISSA_START, read_lora
from launch.checkpoint.ranks import barrier, on_rank_zero, rank
from launch.errors import UserError
from launch.reporting.announce import format_duration

SECONDS_BETWEEN_LINES = 10


def begin_pissa(lora: LoRAModel, checkpoint: Path | None, training_args) -> str:
    """Fill the adapters with A0 and B0, and take their product off the weights; a line about it.

    checkpoint: that the run continues. A new A0 and B0 are in PISSA_NEW until the run trains: a former run's are in
    their place. Called by all ranks together.

    Raises:
        UserError: If its A0 and B0 are missing.
    """
    output = Path(training_args.output_dir)
    start = output / PISSA_NEW
    before = checkpoint.parent / PISSA_START if checkpoint else None
    if before and not (before / LORA_CONFIG_NAME).is_file():
        raise UserError(
            f"{before}: missing. The run of {checkpoint} began with --pissa 1 and kept its first adapter there. Copy "
            "it back, or start anew with another --output_dir."
        )
    layers = [layer for layer in lora.sublayers() if isinstance(layer, LoRALinear)]
    if before and before.resolve() == (output / PISSA_START).resolve():
        start = before
    else:
        on_rank_zero(lambda: shutil.rmtree(start, ignore_errors=True))
        if before:
            fill_lora(lora, read_lora(before))
        elif training_args.dataset_rank == 0:
            _decompose(layers)
        save_adapter(lora, start, training_args)
    barrier()
    fill_lora(lora, read_lora(start))  # the same numbers on all ranks
    for layer in layers:
        product = layer.scaling * paddle.matmul(layer.lora_A.astype("float32"), layer.lora_B.astype("float32"))
        layer.weight.set_value((layer.weight.astype("float32") - product).astype(layer.weight.dtype))
    return f"PiSSA: the adapters begin as the largest singular values of {len(layers)} weights, which keep the rest"


@paddle.no_grad()
def _decompose(layers: list[LoRALinear]) -> None:
    """Fill lora_A [inputs, r] and lora_B [r, outputs] of each layer."""
    started = printed = time.monotonic()
    for done, layer in enumerate(layers, start=1):
        u, s, vh = paddle.linalg.svd(layer.weight.astype("float32"), full_matrices=False)
        root = (s[: layer.r] / layer.scaling).sqrt()
        layer.lora_A.set_value((u[:, : layer.r] * root).astype(layer.lora_A.dtype))
        layer.lora_B.set_value((root.unsqueeze(1) * vh[: layer.r]).astype(layer.lora_B.dtype))
        now = time.monotonic()
        if rank() == 0 and now - printed > SECONDS_BETWEEN_LINES:
            left = (now - started) / done * (len(layers) - done)
            print(f"PiSSA: singular values of {done} of {len(layers)} layers  ETA {format_duration(left)}", flush=True)
            printed = now


def write_as_plain_lora(directory: Path, start: Path) -> None:
    """Make the adapter in `directory`, as it was trained, a LoRA with the product A B - A0 B0. start: of A0 and B0."""
    first = read_lora(start)
    for file in directory.glob("peft_model-*.safetensors"):
        stored = load_file(file)
        tensors = {}
        for name, trained in stored.items():  # [A, A0], and B above -B0
            of_start = first.tensors[name].open()
            pair = (trained, of_start) if name.endswith("lora_A") else (trained, -of_start)
            tensors[name] = np.concatenate(pair, axis=1 if name.endswith("lora_A") else 0)
        file.write_bytes(save(tensors, metadata={"format": "np"}))
    path = directory / LORA_CONFIG_NAME
    config = json.loads(path.read_text("utf-8"))
    rank = 2 * config["r"]
    config |= {"r": rank, "lora_alpha": config["scaling"] * rank, "rslora": False}
    path.write_text(json.dumps(config, indent=2), "utf-8")

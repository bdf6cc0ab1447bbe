"""What PaddleFormers makes of exported models: their logits, or what it has read of a model that no CPU runs.

    PYTHONPATH=.venv/paddleformers python -m tests.weights.exported_in_paddleformers FOLDER

Writes FOLDER/NAME.logits.npy or FOLDER/NAME.read.npy, all values of the model in order, for each directory NAME.
Its RMSNorm is of a kernel that Paddle has for cards alone, and its usual Qwen classes are PaddleFleet's, which has no
wheel for a CPU: NumPy's formula and its own classes (...Deprecated), which read the same tensors, take their place.
"""

import importlib
import json
import os
import sys
from pathlib import Path
from types import ModuleType

import numpy as np

CARDS_ALONE = ("ernie4_5_moe",)  # model types, for their kernels


class Absent(ModuleType):
    """A module of PaddleFleet whose names are there and do nothing."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return (lambda *_: False) if name.islower() else type(name, (), {})


def rms_norm(x, weight, epsilon: float) -> tuple:
    return (x * (x.square().mean(-1, keepdim=True) + epsilon).rsqrt() * weight,)


def read(directory: Path, ids: np.ndarray) -> None:
    import paddle

    config = json.loads((directory / "config.json").read_text())
    module = importlib.import_module(f"paddleformers.transformers.{config['model_type']}.modeling")
    [name] = config["architectures"]
    model_class = getattr(module, f"{name}Deprecated", None) or getattr(module, name)
    model = model_class.from_pretrained(str(directory), dtype="float32", convert_from_hf=True)
    if config["model_type"] in CARDS_ALONE:
        tied = {"lm_head.weight"} if config["tie_word_embeddings"] else set()
        values = [value.numpy().ravel() for name, value in model.state_dict().items() if name not in tied]
        np.save(f"{directory}.read.npy", np.sort(np.concatenate(values)))
        return
    model.eval()
    with paddle.no_grad():
        outputs = model(input_ids=paddle.to_tensor(ids))
    logits = outputs if isinstance(outputs, paddle.Tensor) else outputs[0]
    np.save(f"{directory}.logits.npy", logits.numpy())


def main(root: Path) -> int:
    for name in ("paddleformers.transformers.gpt_provider", "paddlefleet_ops", "paddlefleet_ops.deep_ep"):
        sys.modules[name] = Absent(name)
    vars(importlib.import_module("paddleformers.nn.norm"))["fused_rms_norm_ext"] = rms_norm
    ids = np.load(root / "ids.npy")
    failed = 0
    for directory in sorted(path for path in root.iterdir() if path.is_dir()):
        if not (child := os.fork()):  # a process takes the second model's tensors for the first one's
            read(directory, ids)
            os._exit(0)
        failed |= os.waitpid(child, 0)[1]
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

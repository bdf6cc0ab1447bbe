"""A layer with DoRA in PEFT.

    python -m tests.adapters.dora_in_peft LAYER.npz

LAYER.npz is what variants_ranks.dora has saved. The output and the gradients of PEFT's layer are printed as differences
from those, each as a part of the largest value.
"""

import json
import sys

import numpy as np
import torch
from peft import LoraConfig, get_peft_model


def main(path: str) -> None:
    found = dict(np.load(path))
    base = torch.nn.Linear(*found["weight"].shape)
    base.weight.data, base.bias.data = torch.tensor(found["weight"].T.copy()), torch.tensor(found["bias"])
    config = LoraConfig(r=4, lora_alpha=6, use_dora=True, target_modules=["0"])
    layer = get_peft_model(torch.nn.Sequential(base), config).base_model.model[0]
    a, b, magnitude = (getattr(layer, name)["default"].weight for name in ("lora_A", "lora_B", "lora_magnitude_vector"))
    a.data, b.data = torch.tensor(found["lora_A"].T.copy()), torch.tensor(found["lora_B"].T.copy())
    magnitude.data = torch.tensor(np.linalg.norm(found["weight"], axis=0) + found["lora_magnitude"])
    x = torch.tensor(found["x"], requires_grad=True)
    output = layer(x)
    output.backward(torch.tensor(found["gradient"]))
    theirs = {"output": output.detach(), "d_x": x.grad, "d_lora_A": a.grad.T, "d_lora_B": b.grad.T}
    theirs["d_lora_magnitude"] = magnitude.grad
    off = {name: np.abs(found[name] - one.numpy()).max() / np.abs(found[name]).max() for name, one in theirs.items()}
    print(json.dumps({name: float(one) for name, one in off.items()}))


if __name__ == "__main__":
    main(sys.argv[1])

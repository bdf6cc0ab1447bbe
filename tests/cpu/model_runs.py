"""Trainings of a small model, written to a file; started by test_kernels.py with cpu_fast and without.

    python tests/cpu/model_runs.py auto|compiled|off OUTPUT.npz

compiled: auto, with the operators that `make custom-ops` builds.

For each layout ten losses, the gradients of the first step, and logits of an evaluation with longer rows.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from launch.cpu.settings import prepare  # noqa: E402

prepare("off" if sys.argv[1] == "off" else "auto", processes=1)

import numpy as np  # noqa: E402
import paddle  # noqa: E402

from launch.cpu.kernels import apply  # noqa: E402
from launch.devices.cpu_operators import compiled_operators  # noqa: E402
from tests.cpu.small_model import LENGTH, batch, model  # noqa: E402

# Name of the run -> configuration beyond the common one.
LAYOUTS = {
    "heads": {},
    "gqa": {"num_key_value_heads": 2},
    "full": {"recompute_granularity": "full"},
    "full_attn": {"recompute_granularity": "full_attn"},
    "core_attn": {"recompute_granularity": "core_attn"},
    "hooks": {"recompute_granularity": "full", "recompute_use_reentrant": False},
    "frozen_norms": {},
}


def train(layout: str, speed: str) -> dict[str, np.ndarray]:
    """Ten steps of AdamW with clipping. Returns arrays by name: losses, logits, one gradient a weight."""
    made = model(**LAYOUTS[layout])
    if speed != "off":
        compiled = compiled_operators() if speed == "compiled" else None
        assert bool(compiled) == (speed == "compiled"), "make custom-ops"
        apply(made, compiled)
    if "recompute_granularity" in LAYOUTS[layout]:
        made.recompute_enable()
    for name, weight in made.named_parameters():
        weight.stop_gradient = layout == "frozen_norms" and ("norm" in name or "embed" in name)
    clip = paddle.nn.ClipGradByGlobalNorm(1.0)
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=made.parameters(), weight_decay=0.01, grad_clip=clip)
    arrays, losses = {}, []
    for step in range(10):
        ids = batch(step, LENGTH // 2 if step == 5 else LENGTH)
        loss = made(ids[:, :-1], labels=ids[:, 1:])[0]
        loss.backward()
        if step == 0:
            found = {name: weight.grad for name, weight in made.named_parameters() if weight.grad is not None}
            arrays = {f"gradient {name}": grad.numpy() for name, grad in found.items()}
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss.item())
        if step == 4:
            with paddle.no_grad():
                arrays["logits"] = made(batch(99, 48)[:, :-1])[0].numpy()
    return {**arrays, "losses": np.array(losses)}


if __name__ == "__main__":
    runs = {layout: train(layout, sys.argv[1]) for layout in LAYOUTS}
    np.savez(sys.argv[2], **{f"{layout}/{name}": array for layout, run in runs.items() for name, array in run.items()})

"""Rank functions of test_sequence_slices.py: MLPs and norms in slices beside whole ones."""

import numpy as np
import paddle

from launch.families.registry import FAMILIES
from launch.offload.activations import offload_activations
from launch.training.sequence_slices import Sliced, slice_sequence
from tests.families.family_ranks import batch, build, tiny, with_lora

WHOLE, SLICED = {"flag": "off"}, {"flag": "3"}


def compare(names: list[str]) -> dict[str, list[float]]:
    """By family, the largest differences of its ways from the first, see `differences`."""
    ways = [WHOLE, SLICED, SLICED | {"recompute": True}, SLICED | {"recompute": True, "offloads": True}]
    return {name: differences([outcome(name, **way) for way in ways]) for name in names}


def with_dropout_and_sums() -> tuple[list[float], list[float]]:
    """The largest differences where adapters drop inputs out: of two ways in slices, and of one that is whole. The
    gradient, in bfloat16, of two numbers that 512 slices have a gradient of 1 for."""
    ways = [SLICED, SLICED | {"recompute": True}, WHOLE]
    dropped = differences([outcome("llama", **way, dropout=0.5) for way in ways])
    weight = paddle.ones([1, 1, 2], "bfloat16")
    weight.stop_gradient = False
    Sliced.apply(paddle.ones([1, 512, 2], "bfloat16"), lambda x: x * weight, 1, weight).sum().backward()
    return dropped, weight.grad.astype("float32").flatten().tolist()


def differences(outcomes: list[dict[str, np.ndarray]]) -> list[float]:
    """The largest difference of each outcome from the first, relative to the tensor's largest element."""
    first = outcomes[0]
    assert all(one.keys() == first.keys() for one in outcomes)
    return [
        max(float(abs(one[key] - first[key]).max() / abs(first[key]).max()) for key in first) for one in outcomes[1:]
    ]


def outcome(name: str, flag: str, recompute: bool = False, offloads: bool = False, dropout: float = 0.0) -> dict:
    """The loss of a batch, and all gradients, by name."""
    model = build(name, tiny(name))
    if dropout:
        model = with_lora(model, 4)
        for layer in model.sublayers():
            if hasattr(layer, "lora_dropout"):
                layer.lora_dropout = paddle.nn.Dropout(dropout)
    slice_sequence(model, flag)
    if offloads:
        offload_activations(model)
    if recompute:
        model.recompute_enable()
    model.train()
    paddle.seed(1)
    inputs = batch(FAMILIES[name], samples=3, length=20)
    loss = model(**inputs)
    loss = loss[0] if isinstance(loss, tuple) else loss
    loss.backward()
    trained = {key: one for key, one in model.named_parameters() if not one.stop_gradient}
    return {"loss": loss.numpy()} | {key: one.grad.numpy() for key, one in trained.items()}

"""Rank functions of test_sequence_slices.py: MLPs and norms in slices beside whole ones."""

import numpy as np
import paddle

from launch.families.registry import FAMILIES
from launch.offload.activations import offload_activations
from launch.training.sequence_slices import Sliced, slice_sequence
from tests.families.family_ranks import batch, build, tiny

WHOLE, SLICED = {"flag": "off"}, {"flag": "3"}


def compare(names: list[str]) -> dict[str, list[float]]:
    """By family, the largest differences of its ways from the first, see `differences`."""
    ways = [WHOLE, SLICED, SLICED | {"recompute": True}, SLICED | {"recompute": True, "offloads": True}]
    return {name: differences([outcome(name, **way) for way in ways]) for name in names}


def dropout_and_sums() -> tuple[list[bool], list[float]]:
    """Whether a number that dropout leaves has a gradient, and that it is dropout's factor, of slices of ones; the
    gradient, in bfloat16, of two numbers that 512 slices have a gradient of 1 for."""
    ones = paddle.ones([2, 64, 4])
    ones.stop_gradient = False
    dropped = Sliced.apply(ones, paddle.nn.functional.dropout, 8)
    dropped.sum().backward()
    weight = paddle.ones([1, 1, 2], "bfloat16")
    weight.stop_gradient = False
    Sliced.apply(paddle.ones([1, 512, 2], "bfloat16"), lambda x: x * weight, 1, weight).sum().backward()
    found = [bool((ones.grad == dropped).all()), bool((dropped == 0).any())]
    return found, weight.grad.astype("float32").flatten().tolist()


def differences(outcomes: list[dict[str, np.ndarray]]) -> list[float]:
    """The largest difference of each outcome from the first, relative to the tensor's largest element."""
    first = outcomes[0]
    assert all(one.keys() == first.keys() for one in outcomes)
    return [
        max(float(abs(one[key] - first[key]).max() / abs(first[key]).max()) for key in first) for one in outcomes[1:]
    ]


def outcome(name: str, flag: str, recompute: bool = False, offloads: bool = False) -> dict:
    """The loss of a batch, and all gradients, by name."""
    model = build(name, tiny(name))
    slice_sequence(model, flag)
    if offloads:
        offload_activations(model)
    if recompute:
        model.recompute_enable()
    model.train()
    inputs = batch(FAMILIES[name], samples=3, length=20)
    loss = model(**inputs)
    loss = loss[0] if isinstance(loss, tuple) else loss
    loss.backward()
    trained = {key: one for key, one in model.named_parameters() if not one.stop_gradient}
    return {"loss": loss.numpy()} | {key: one.grad.numpy() for key, one in trained.items()}

"""Layers that compute in float32 beside weights in half precision, for test_float32_layers.py."""

import numpy as np
import paddle
import paddlenlp.transformers as transformers

from launch.families.registry import FAMILIES
from launch.training.model import InFloat32, norms_and_head_in_float32
from tests.families.family_ranks import tiny

HIDDEN = 64


def widened(name: str) -> dict:
    """A family's model in float16 on a CPU, whose kernels of half precision are few: layers one by one.

    "line"; "norms", "heads": how far each layer's answer is from float32's on the same numbers, and in which dtype;
    "others": classes of layers that compute as before; "gradients": dtypes of what the weights get.
    """
    config = tiny(name, hidden_size=HIDDEN, head_dim=HIDDEN)
    model = getattr(transformers, FAMILIES[name].model_class)._from_config(config, dtype="float16")
    stored = {id(one): one.dtype for one in model.parameters()}
    line = norms_and_head_in_float32(model, "float16")
    wide = [layer for layer in model.sublayers() if isinstance(layer, InFloat32)]
    assert all(one.dtype == stored[id(one)] for one in model.parameters())
    answers = [_answer(layer) for layer in wide]
    return {
        "line": line,
        "norms": [one for one in answers if one["dtype"] == "float16"],
        "heads": [one for one in answers if one["dtype"] == "float32"],
        "others": sorted({type(layer).__name__ for layer in model.sublayers() if not isinstance(layer, InFloat32)}),
    }


def _answer(layer) -> dict:
    """Where sums of squares are beyond float16: 300^2 a number."""
    x = paddle.to_tensor(np.random.default_rng(0).normal(0, 300, (2, 3, HIDDEN)).astype("float16"))
    x.stop_gradient = False
    found = layer(x, False) if type(layer).__name__.endswith("BloomLMHead") else layer(x)
    found.astype("float32").sum().backward()
    gradients = {str(one.grad.dtype) for one in layer.parameters() if one.grad is not None}
    expected = _by_definition(layer, x.numpy().astype("float64"))
    off = np.abs(found.astype("float32").numpy() - expected).max() / np.abs(expected).max()
    return {"dtype": str(found.dtype).removeprefix("paddle."), "off": float(off), "gradients": sorted(gradients)}


def _by_definition(layer, x: np.ndarray) -> np.ndarray:
    """In float64; the norms' weights are 1 and their biases 0."""
    if "LayerNorm" in type(layer).__name__:
        x = x - x.mean(-1, keepdims=True)
    if "Norm" in type(layer).__name__:
        return x / np.sqrt((x**2).mean(-1, keepdims=True))
    [weight] = layer.parameters()
    weight = weight.numpy().astype("float64")
    return x @ (weight if weight.shape[0] == HIDDEN else weight.T)


def in_float32() -> str:
    model = transformers.LlamaForCausalLM._from_config(tiny("llama"), dtype="float32")
    line = norms_and_head_in_float32(model, "float32")
    assert not any(isinstance(layer, InFloat32) for layer in model.sublayers())
    return line

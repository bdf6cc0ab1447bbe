"""The logits of a model on fixed token ids, with a LoRA adapter beside it or without, in the memory of one layer."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import paddle

from launch.adapters.lora_files import LoraFiles, LoraLayer
from launch.adapters.token_rows import write_rows
from launch.checkpoint.model_loader import open_layerwise
from launch.checkpoint.stored_tensor import FLOATS, StoredTensor, convert
from launch.checkpoint.weight_files import find_weights
from launch.families.encoding import prefix_lm_mask, prefix_lm_positions
from launch.families.named_configs import load_config
from launch.families.parameters import gives_scores
from launch.families.registry import Family, as_reward_model, family_of_config
from launch.training.model import class_of, family_config

SAMPLES, LENGTH, PROMPT = 2, 32, 8
# How far logits may be off, as a part of the largest one: what the rounding of all weights to a dtype amounts to.
ROUNDING = {"float64": 1e-4, "float32": 1e-4, "float16": 1e-2, "bfloat16": 8e-2}


@dataclass(frozen=True)
class LogitsComparison:
    """Largest absolute values over all logits.

    Attributes:
        difference: Between the merged model and base + adapter. effect: of the adapter, base + adapter less base.
        largest: Of base + adapter. allowed: of the difference.
    """

    difference: float
    effect: float
    largest: float
    allowed: float

    @property
    def ok(self) -> bool:
        """Whether the difference is allowed. Logits of zeros alone come from values that were too large on the way."""
        return self.largest > 0 and self.difference <= self.allowed

    def __str__(self) -> str:
        return (
            f"largest difference of logits between merged and base + adapter: {self.difference:.2g}, allowed "
            f"{self.allowed:.2g} (logits are up to {self.largest:.3g}, the adapter moves them by {self.effect:.2g})"
        )


def compare_logits(base: Path, lora: LoraFiles, merged: Path) -> LogitsComparison:
    """Return the comparison of three forward passes on the CPU, one after another."""
    paddle.set_device("cpu")
    scores = lora.score is not None
    trained = fixed_logits(base, lora, scores)
    largest = float(np.abs(trained).max())
    dtypes = {stored.dtype for stored in find_weights(merged).values() if stored.dtype in FLOATS}
    return LogitsComparison(
        difference=float(np.abs(fixed_logits(merged) - trained).max()),
        effect=float(np.abs(fixed_logits(base, scores=scores) - trained).max()),
        largest=largest,
        allowed=max(ROUNDING[dtype] for dtype in dtypes) * largest,
    )


def fixed_logits(directory: Path, lora: LoraFiles | None = None, scores: bool = False) -> np.ndarray:
    """Return float32 [SAMPLES, LENGTH, vocabulary]: the same ids at every call.

    Args:
        directory: Of the model.
        lora: Not merged, but computed beside.
        scores: Whether the directory is the base of a reward model, which gives scores, [SAMPLES x LENGTH].
    """
    values = load_config(str(directory))
    config = family_config(as_reward_model(values) if scores else values)
    family = family_of_config(config.to_dict())
    model = open_layerwise(class_of(config), config, directory)
    if lora:
        _add_beside(model, lora)
    inputs = fixed_inputs(family, config.vocab_size)
    if gives_scores(config.to_dict()):
        inputs["ends"] = np.arange(SAMPLES * LENGTH)
    with paddle.no_grad():
        outputs = model(**{key: paddle.to_tensor(value) for key, value in inputs.items()})
    return (outputs[0] if isinstance(outputs, tuple) else outputs).numpy()


def fixed_inputs(family: Family, vocab_size: int) -> dict[str, np.ndarray]:
    """Return the inputs, the same at every call."""
    inputs = {"input_ids": np.random.default_rng(0).integers(0, vocab_size, (SAMPLES, LENGTH))}
    if family.attention == "prefix":
        mask = np.tile(prefix_lm_mask(LENGTH, PROMPT), (SAMPLES, 1, 1, 1))
        inputs["attention_mask"] = mask.astype(family.mask_dtype)
        inputs["position_ids"] = np.tile(prefix_lm_positions(LENGTH, PROMPT, PROMPT - 1), (SAMPLES, 1, 1))
    return inputs


def _add_beside(model, lora: LoraFiles) -> None:
    layers = dict(model.named_sublayers())
    for name, change in lora.layers.items():
        layers[name].register_forward_post_hook(_adds(change, lora.scaling))
        if change.magnitude:
            layers[name].register_forward_post_hook(_stretches(change, change.magnitude, lora.scaling))
    write_rows(model, lora)
    if lora.score:
        model.score.weight.set_value(_tensor(lora.score))


def _adds(change: LoraLayer, scaling: float):
    """Return the hook of LoRA's addition to a layer's output: scaling * (x A) B."""

    def add(_, inputs, output):
        return output + scaling * ((inputs[0] @ _tensor(change.a)) @ _tensor(change.b))

    return add


def _stretches(change: LoraLayer, magnitude: StoredTensor, scaling: float):
    """Return the hook of DoRA's change of the sum, from the whole matrix W + scaling A B."""

    def stretch(layer, _, output):
        turned = layer.weight + scaling * _tensor(change.a) @ _tensor(change.b)
        factors = (paddle.norm(layer.weight, axis=0) + _tensor(magnitude)) / paddle.norm(turned, axis=0)
        bias = 0 if layer.bias is None else layer.bias
        return factors * (output - bias) + bias

    return stretch


def _tensor(stored: StoredTensor) -> paddle.Tensor:
    return paddle.to_tensor(convert(stored.open(), stored.dtype, "float32"))

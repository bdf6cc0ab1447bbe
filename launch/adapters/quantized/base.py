"""A frozen model whose linear layers keep their weights in 8 or 4 bits, to train adapters beside (QLoRA) or to use.

    model = load_model(model_class, config, dtype, directory, filled=quantize_filled(family, format))
    model = LoRAModel(model, lora_config)       # or any other adapter, or none
    print(use_quantized(model, format))

Weights are quantized one after the other as they are read: the model in full precision is never in memory. Each
layer computes its product from the codes (launch/adapters/quantized/product.py). paddlenlp's own quantized layers are
not used: they want PaddleSlim's CUDA operators even for int8, know nf4 and fp4 on one card only, lose the offset of
doubly quantized scales (quant_sacle_offset in peft/lora/lora_model.py), and refuse llm.int8 beside LoRA. These work in
every layout, with every adapter and on every device.
"""

import math
from collections.abc import Callable

import numpy as np
import paddle
from paddle.distributed.fleet.meta_parallel import PipelineLayer
from paddlenlp.transformers.model_utils import dtype_guard

from launch.adapters.quantized import cuda_kernels
from launch.adapters.quantized.product import ExactRows, linear, linear_replaced
from launch.adapters.quantized.quantization import Format, Packed, dequantize, quantize
from launch.checkpoint.read import Fill, without_values
from launch.checkpoint.stored_tensor import convert
from launch.families.registry import Family, family_of_config


class QuantizedWeight:
    """Put before the class of a linear layer: its `weight` is `packed`, of which the layer's forward makes a product;
    anybody else who asks gets the numbers that it stands for."""

    packed: Packed
    computing = False

    @property
    def weight(self) -> paddle.Tensor | Packed:
        return self.packed if self.computing else dequantize(self.packed)

    def forward(self, *args, **kwargs):
        self.computing = True
        try:
            with linear_replaced():
                return super().forward(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]  # the layer's class
        finally:
            self.computing = False


def quantize_filled(family: Family, format: Format) -> Callable[[Fill], None]:
    """What load_model calls for each tensor that it has read: a linear layer's becomes codes, its values go."""

    def quantize_one(fill: Fill) -> None:
        if _is_linear_weight(fill.name, family):
            exact = _exact_rows(fill) if format.algo == "llm.int8" else None
            fill.parameter.packed = quantize(fill.parameter, format, exact)
            fill.release()

    return quantize_one


def use_quantized(model, format: Format) -> str:
    """Let the layers of a model compute with what quantize_filled has made of their weights, once all adapters are in
    place; one line about it."""
    found = [(layer, packed) for layer in model.sublayers() if (packed := _packed_of(layer))]
    for layer, packed in found:
        _swap(layer, packed)
    return describe([layer for layer, _ in found], format)


def random_model(model_class, config, dtype: str, format: Format):
    """A model with random weights, each linear layer's quantized as soon as it is drawn: use_quantized is to follow.

    Norms, embedding and head are drawn as the family's model does, linear layers with its initializer_range.
    """
    config.dtype = dtype
    model = without_values(model_class, config, dtype)
    family = family_of_config(config.to_dict())
    deviation = getattr(config, "initializer_range", 0.02)
    for name, layer in model.named_sublayers(include_self=True):
        # A head that shares the embedding's weight comes a second time, and has been drawn.
        parameters = {name: one for name, one in layer._parameters.items() if one is not None and one._init_func}
        for parameter in parameters.values():
            parameter.initialize()
        if "weight" in parameters and _is_linear_weight(f"{name}.weight", family):
            weight = parameters["weight"]
            weight.packed = quantize(paddle.tensor.random.gaussian(weight.shape, std=deviation, dtype=dtype), format)
            weight._clear_data()
        elif parameters:
            with dtype_guard(dtype):
                model._init_weights(layer)
    if isinstance(model, PipelineLayer):
        model._synchronize_shared_weights()
    return model


def describe(layers: list, format: Format) -> str:
    weights = sum(layer.packed.shape[0] * layer.packed.shape[1] for layer in layers)
    nbytes = sum(layer.packed.nbytes for layer in layers)
    changed, whole = (sum(layer.packed.squares[i] for layer in layers) for i in (0, 1))
    by_kernel = sum(layer.packed.by_kernel for layer in layers)
    kernels = f" ({by_kernel} on Paddle's kernels)" if by_kernel else ""
    if reasons := _why_not(layers):
        kernels += f" ({len(layers) - by_kernel} not on Paddle's kernels: {'; '.join(reasons)})"
    return (
        f"base: {len(layers)} linear layers in {format.algo}{kernels}, {8 * nbytes / weights:.2f} bits a weight, "
        f"{nbytes / 1e9:.2f} GB; rounding is {100 * math.sqrt(changed / whole):.2f} % of the weights (rms)"
    )


def _why_not(layers: list) -> list[str]:
    """On a card: the reasons why Paddle's kernels do not compute with some of the layers, in the order they come."""
    others = [one.packed for one in layers if not one.packed.by_kernel and cuda_kernels.on_card(one.packed.codes)]
    return list(dict.fromkeys(cuda_kernels.why_not(one.format.algo, one.shape, one.dtype) for one in others))


def _is_linear_weight(name: str, family: Family) -> bool:
    layer, _, last = name.rpartition(".")
    return last == "weight" and layer.rpartition(".")[2] in family.linear_layers


def _exact_rows(fill: Fill) -> ExactRows:
    def read(columns: list[int]) -> paddle.Tensor:
        rows = np.ascontiguousarray(fill.part(fill.stored.open())[columns])
        return paddle.to_tensor(convert(rows, fill.stored.dtype, "float32"))

    return ExactRows(read, fill.parameter.shape[0], fill.dtype)


def _packed_of(layer) -> Packed | None:
    return getattr(layer._parameters.get("weight"), "packed", None)


def _swap(layer, packed: Packed) -> None:
    del layer._parameters["weight"]
    layer.packed = packed
    layer.__class__ = type(f"Quantized{type(layer).__name__}", (QuantizedWeight, type(layer)), {})
    if "linear" in vars(layer):  # fleet's layers keep the function that they were made with
        layer.linear = linear

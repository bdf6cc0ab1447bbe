"""A frozen model whose linear layers keep their weights in 8 or 4 bits, to train adapters beside (QLoRA).

Each layer computes its weight from the codes when it is used, in the forward and again in the backward pass, so that
one layer's weight at a time has memory. paddlenlp's own quantised layers are not used: they want PaddleSlim's CUDA
operators even for int8, know nf4 and fp4 on one card only, and lose the offset of doubly quantised scales
(quant_sacle_offset in peft/lora/lora_model.py). These work in every layout, with every adapter and on every device.
"""

from contextlib import ExitStack, suppress

import paddle

from launch.adapters.quantization import Format, Packed, dequantize, quantize
from launch.models.families import family_of_config


class QuantizedWeight:
    """Put before the class of a linear layer: its `weight` is computed from `packed`."""

    packed: Packed
    in_use: tuple[paddle.Tensor, ...] = ()  # the weight, while the layer computes

    @property
    def weight(self) -> paddle.Tensor:
        return self.in_use[0] if self.in_use else dequantize(self.packed)

    def forward(self, *args, **kwargs):
        self.in_use = (dequantize(self.packed),)
        with ExitStack() as stack:
            stack.callback(setattr, self, "in_use", ())
            with suppress(ValueError):  # within recomputation, whose own hooks keep no weight either
                stack.enter_context(paddle.autograd.saved_tensors_hooks(self._without_weight, self._with_weight))
            return super().forward(*args, **kwargs)

    def _without_weight(self, saved: paddle.Tensor) -> paddle.Tensor | None:
        """What the backward pass keeps of a tensor: nothing of the weight."""
        return None if saved.data_ptr() == self.weight.data_ptr() else saved

    def _with_weight(self, kept: paddle.Tensor | None) -> paddle.Tensor:
        return self.weight if kept is None else kept


def quantize_base(model, format: Format) -> str:
    """Quantise the linear layers of a model, with or without its adapter, one after the other; one line about it.

    They must have their values: the model has its full size in memory before.
    """
    names = family_of_config(model.config.to_dict()).linear_layers
    layers = [layer for name, layer in model.named_sublayers() if name.rpartition(".")[2] in names]
    for layer in layers:
        _quantize_layer(layer, format)
    weights = sum(layer.packed.shape[0] * layer.packed.shape[1] for layer in layers)
    nbytes = sum(layer.packed.nbytes for layer in layers)
    return (
        f"base: {len(layers)} linear layers in {format.algo}, {8 * nbytes / weights:.2f} bits a weight, "
        f"{nbytes / 1e9:.2f} GB"
    )


def _quantize_layer(layer, format: Format) -> None:
    packed = quantize(layer.weight, format)
    del layer._parameters["weight"]
    layer.packed = packed
    layer.__class__ = type(f"Quantized{type(layer).__name__}", (QuantizedWeight, type(layer)), {})

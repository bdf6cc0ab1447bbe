"""DoRA (arXiv 2402.09353): the lengths of the columns of W + scaling A B are trained apart from their directions.

A column is an output's weights. Its length is that of W's own column plus a trained number, lora_magnitude, which
begins at 0: the first loss is the base model's, to the bit, and a small change is not rounded off beside a large length
in 16 bits. PEFT trains the sum itself, by the same gradient. As there, the length that W + scaling A B has is divided
out as a constant. With dropout on what A reads, the base's product reads all, PEFT's a part of it.

The length follows from products of r rows, without a matrix of W's size:
|W + s A B|^2 = |W|^2 + 2 s (A^T W) B + s^2 B^T (A^T A) B, for each column.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import paddle
from paddle.distributed.fleet.layers.mpu import mp_ops
from paddle.distributed.fleet.utils.sequence_parallel_utils import (
    is_sequence_parallel_parameter,
    mark_as_sequence_parallel_parameter,
)
from paddlenlp.peft import LoRAConfig, LoRAModel

from launch.adapters.lora_files import SMALLEST
from launch.adapters.quantization import dequantize
from launch.adapters.token_rows import RowsConfig


@dataclass
class DoraConfig(RowsConfig):
    """The configuration of a LoRA with magnitudes. Its file says so by PEFT's key."""

    use_dora: bool = True


class Stretch:
    """A hook that gives the columns of a layer's weight, with its adapter, their trained lengths.

    Attributes:
        fixed: What the output, less its bias, is multiplied by, less 1; None while it is trained.
    """

    def __init__(self, layer):
        self.fixed: paddle.Tensor | None = None
        with paddle.no_grad():
            self.squares = _summed(layer, _weight(layer).astype("float32").square().sum(axis=0))

    def __call__(self, layer, _, output: paddle.Tensor) -> paddle.Tensor:
        """Return the layer's output for stretched columns."""
        if layer.disable_lora:
            return output
        with paddle.amp.auto_cast(False):
            change = (self.change(layer) if self.fixed is None else self.fixed).astype(output.dtype)
            product = output if layer.bias is None else output - layer.bias.astype(output.dtype)
            return output + product * change

    def change(self, layer) -> paddle.Tensor:
        """Return [outputs], float32: the trained length of each column by the length it has, less 1."""
        with paddle.no_grad(), paddle.amp.auto_cast(False):
            a, b, scaling = layer.lora_A, layer.lora_B.astype("float32"), layer.scaling
            across = _summed(layer, paddle.matmul(a, _weight(layer), transpose_x=True).astype("float32"))
            within = _summed(layer, paddle.matmul(a.astype("float32"), a.astype("float32"), transpose_x=True))
            added = (b * (2 * scaling * across + scaling**2 * paddle.matmul(within, b))).sum(axis=0)
            before, now = (value.clip(min=SMALLEST).sqrt() for value in (self.squares, self.squares + added))
        return (before - now + layer.lora_magnitude.astype("float32")) / now


def _weight(layer) -> paddle.Tensor:
    """Return a layer's frozen weight [inputs, outputs]; one in 8 or 4 bits is computed from its codes."""
    weight = layer.weight
    packed = getattr(weight, "packed", None)  # before use_quantized has swapped the layer
    return dequantize(packed) if packed else weight


def _summed(layer, part: paddle.Tensor) -> paddle.Tensor:
    """Return the sum over the ranks of tensor parallelism, where each has some of the inputs alone."""
    if not layer.lora_A.is_distributed:
        return part
    summed = mp_ops._mp_allreduce(part, group=layer.model_parallel_group)
    assert summed is not None  # this rank is in the group
    return summed


def make_lora(model, config: LoRAConfig) -> LoRAModel:
    """Return the model with adapters beside its layers, and magnitudes where the configuration is a DoraConfig."""
    lora = LoRAModel(model, config)
    for name, layer in lora.model.named_sublayers() if isinstance(config, DoraConfig) else ():
        if not hasattr(layer, "lora_A"):
            continue
        layer.lora_magnitude = magnitude = layer.create_parameter(
            shape=[layer.lora_B.shape[1]],
            dtype=layer.lora_B.dtype,
            attr=paddle.ParamAttr(
                initializer=paddle.nn.initializer.Constant(0.0),
                learning_rate=config.lora_plus_scale,  # as in PEFT's LoRA+
            ),
        )
        magnitude.is_distributed = layer.lora_B.is_distributed
        if magnitude.is_distributed:
            magnitude.split_axis = 0
            lora.add_lora_split_mapping(f"{name}.lora_magnitude", is_column=True)
        if is_sequence_parallel_parameter(layer.lora_B):
            mark_as_sequence_parallel_parameter(magnitude)
        layer.stretch = Stretch(layer)
        layer.register_forward_post_hook(layer.stretch)
    return lora


@paddle.no_grad()
def fix_lengths(model) -> None:
    """Compute the lengths of an adapter, if it is a DoRA, once for all answers until it is trained again."""
    for layer in model.sublayers():
        if hasattr(layer, "stretch"):
            layer.stretch.fixed = layer.stretch.change(layer)


@contextmanager
def lengths_fixed(model) -> Iterator[None]:
    """Fix the lengths for answers within the block; training goes on behind it."""
    fix_lengths(model)
    try:
        yield
    finally:
        for layer in model.sublayers():
            if hasattr(layer, "stretch"):
                layer.stretch.fixed = None

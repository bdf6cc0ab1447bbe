"""A linear layer's product with a weight in 8 or 4 bits, and its gradient by the inputs, of which it keeps nothing.

LLM.int8 (arXiv 2208.07339, section 3): a product whose inputs and weights are rounded to 8 bits, except for outliers.
A few columns of the inputs are far larger than all others and would take the 255 steps of 8 bits for themselves.
Columns with a value of at least THRESHOLD are computed apart, in 16 bits, with the weights' rows as they were before
they were rounded; the rest is rounded by a scale for each row of the inputs and one for each output of the weights.
Rows of weights that are far larger than the others are treated likewise (Packed.apart). The exact rows come from the
weights' file when they are first needed (ExactRows): which these are, no file says. Without a file (weights that never
were in one) the rounded rows are taken.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle.autograd import PyLayer
from paddle.distributed.fleet.meta_parallel import PipelineLayer
from paddlenlp.transformers.model_utils import dtype_guard

from launch.adapters import cuda_kernels
from launch.adapters.quantization import KEPT, LARGEST, Format, Packed, dequantize, no_zeros, quantize, whole_codes
from launch.checkpoint.model_loader import Fill, without_values
from launch.checkpoint.stored_tensor import convert
from launch.families.registry import Family, family_of_config
from launch.tape.quantized import HEAD_WEIGHT, columns_of_part

LARGEST_FLOAT16 = 65504.0
THRESHOLD = 6.0  # the paper's, and the default of bitsandbytes and of paddle.nn.quant.llm_int8_linear


def outlier_columns(inputs: paddle.Tensor) -> list[int]:
    """Return the columns with a value of at least THRESHOLD."""
    large = (inputs.reshape([-1, inputs.shape[-1]]).abs() >= THRESHOLD).any(axis=0)
    return large.nonzero().flatten().tolist()  # pyright: ignore[reportReturnType]  # of one axis


@paddle.no_grad()
def product_with_outliers(inputs: paddle.Tensor, columns: list[int], packed: Packed) -> paddle.Tensor:
    """Return inputs [..., inputs] x weight [inputs, outputs], in the inputs' dtype. columns: computed apart."""
    flat = inputs.reshape([-1, packed.shape[0]])
    outputs = rounded_product(_without(flat, columns), packed)
    if columns:
        chosen = paddle.to_tensor(columns)
        outputs += paddle.matmul(flat.index_select(chosen, axis=1), rows_of(packed, columns).astype(flat.dtype))
    return outputs.reshape([*inputs.shape[:-1], packed.shape[1]])


@paddle.no_grad()
def input_gradient(gradient: paddle.Tensor, columns: list[int], packed: Packed) -> paddle.Tensor:
    """Return the gradient of the inputs from the outputs' gradient [..., outputs]; rounding counts as the identity."""
    weight = dequantize(packed).astype(gradient.dtype)
    if columns:
        weight[paddle.to_tensor(columns)] = rows_of(packed, columns).astype(gradient.dtype)
    return paddle.matmul(gradient, weight, transpose_y=True)


def rounded_product(inputs: paddle.Tensor, packed: Packed) -> paddle.Tensor:
    """Return the product of inputs [n, inputs] by plain absmax in 8 bits, vector-wise.

    It is computed by a kernel, or in the inputs' dtype: whole numbers are exact in 16 bits, too, also times a power of
    two, by which sums stay below float16's largest number. Sums themselves are made in float32, and rounded to 16 bits
    once.
    """
    if packed.by_kernel:
        assert not isinstance(packed.scales, Packed)  # as _scales has it, of nf4 alone
        return cuda_kernels.product(inputs, packed.codes, packed.scales, "llm.int8")
    largest, dtype = LARGEST["llm.int8"], inputs.dtype
    down = 2.0 ** -math.ceil(math.log2(largest * largest * packed.shape[0] / LARGEST_FLOAT16))
    values = inputs.astype("float32")
    scales = values.abs().max(axis=1, keepdim=True) / largest
    whole = (values / no_zeros(scales)).round() * down
    sums = paddle.matmul(whole.astype(dtype), whole_codes(packed, dtype)).astype("float32")
    return (sums * (scales / down) * packed.scales).astype(dtype)


def rows_of(packed: Packed, columns: list[int]) -> paddle.Tensor:
    """Return [columns, outputs]: the weight's rows that outliers are multiplied with."""
    if packed.exact:
        return packed.exact(columns)
    return dequantize(packed).index_select(paddle.to_tensor(columns), axis=0)


def _without(inputs: paddle.Tensor, columns: list[int]) -> paddle.Tensor:
    if not columns:
        return inputs
    kept = paddle.ones([inputs.shape[1]], inputs.dtype)
    kept[paddle.to_tensor(columns)] = 0
    return inputs * kept


class ExactRows:
    """Rows of a weight in 16 bits from where they are stored, kept while they are few.

    Attributes:
        read: From row numbers to the rows [rows, outputs].
        inputs: Number of all rows.
        dtype: Of training.
    """

    def __init__(self, read: Callable[[list[int]], paddle.Tensor], inputs: int, dtype: str):
        self.read = read
        self.most = max(2 * inputs // KEPT, 1)  # the large rows, and as many for outliers
        self.dtype: Literal["bfloat16", "float16"] = "bfloat16" if dtype == "bfloat16" else "float16"
        self.kept: dict[int, paddle.Tensor] = {}

    def __call__(self, columns: list[int]) -> paddle.Tensor:
        """Return [columns, outputs]. Keeping rows only saves time."""
        unknown = [column for column in columns if column not in self.kept]
        if unknown:
            if len(self.kept) + len(unknown) > self.most:
                self.kept.clear()
                unknown = columns
            rows = self.read(unknown).astype(self.dtype)
            self.kept |= {column: rows[i] for i, column in enumerate(unknown)}
        return paddle.stack([self.kept[column] for column in columns])


stock_linear = F.linear


def linear(x, weight, bias=None, name=None) -> paddle.Tensor:
    """Compute paddle.nn.functional.linear, also with a Packed weight."""
    if isinstance(weight, PackedColumns):
        return paddle.concat([Product.apply(x, part) for part in weight.parts], axis=-1)
    if not isinstance(weight, Packed):
        return stock_linear(x, weight, bias, name)
    outputs = (Int8Product if weight.format.algo == "llm.int8" else Product).apply(x, weight)
    return outputs if bias is None else outputs + bias


@contextmanager
def linear_replaced() -> Iterator[None]:
    """Replace paddle.nn.functional.linear by ours within the block."""
    before, F.linear = F.linear, linear
    try:
        yield
    finally:
        F.linear = before


class Product(PyLayer):
    """The product with the dequantized weight, which exists only while it is used, recomputed in each pass.

    Independent of automatic mixed precision, it computes in the dtype of the weight, and codes times scales in float32:
    in float16 scales would be rounded to 0, and sums of integers would be too large.
    """

    @staticmethod
    def forward(ctx, x, packed):
        """Compute the product."""
        ctx.packed, ctx.dtype = packed, x.dtype
        with paddle.amp.auto_cast(False):
            x = x.astype(packed.dtype)
            if packed.by_kernel:
                return cuda_kernels.product(x, packed.codes, packed.scales, packed.format.algo)
            return paddle.matmul(x, dequantize(packed))

    @staticmethod
    def backward(ctx, gradient):
        """Compute the gradient of the inputs."""
        with paddle.amp.auto_cast(False):
            weight = dequantize(ctx.packed).astype(gradient.dtype)
            return paddle.matmul(gradient, weight, transpose_y=True).astype(ctx.dtype)


class Int8Product(PyLayer):
    """The product of LLM.int8."""

    @staticmethod
    def forward(ctx, x, packed):
        """Compute the product, outliers apart."""
        ctx.packed, ctx.dtype = packed, x.dtype
        ctx.columns = sorted({*outlier_columns(x), *packed.apart})  # the weight's large rows, too
        with paddle.amp.auto_cast(False):
            return product_with_outliers(x.astype(packed.dtype), ctx.columns, packed)

    @staticmethod
    def backward(ctx, gradient):
        """Compute the gradient of the inputs."""
        with paddle.amp.auto_cast(False):
            return input_gradient(gradient, ctx.columns, ctx.packed).astype(ctx.dtype)


# ---- the output layer


@dataclass(frozen=True)
class PackedColumns:
    """The quantized weight of an output layer, in parts of some columns, of which one at a time is dequantized."""

    parts: tuple[Packed, ...]
    stop_gradient = True

    @classmethod
    def of(cls, weight: paddle.Tensor, format: Format) -> "PackedColumns":
        """Quantize a weight [hidden, vocabulary]."""
        step = columns_of_part(weight.shape[0])
        starts = range(0, weight.shape[1], step)
        return cls(tuple(quantize(weight[:, start : start + step].contiguous(), format) for start in starts))

    @property
    def shape(self) -> tuple[int, int]:
        """Of the weight."""
        return self.parts[0].shape[0], sum(part.shape[1] for part in self.parts)

    @property
    def dtype(self) -> paddle.dtype:
        """Of the weight."""
        return self.parts[0].dtype

    def astype(self, dtype: paddle.dtype) -> "PackedColumns":
        """Return the weight whose parts are dequantized to another dtype."""
        return PackedColumns(tuple(replace(part, dtype=dtype) for part in self.parts))

    def logits(self, inputs: paddle.Tensor) -> paddle.Tensor:
        """Return the logits of inputs [tokens, hidden]."""
        return linear(inputs, self)

    def hidden(self, gradient: paddle.Tensor) -> paddle.Tensor:
        """Return the gradient of the inputs, summed over the parts in float32. gradient: of the logits."""
        total, start = paddle.zeros([gradient.shape[0], self.shape[0]], "float32"), 0
        for part in self.parts:
            columns = gradient[:, start : start + part.shape[1]]
            weight = dequantize(part).astype(gradient.dtype)
            total.add_(paddle.matmul(columns, weight, transpose_y=True).astype("float32"))
            start += part.shape[1]
        return total.astype(gradient.dtype)


# ---- layers


class QuantizedWeight:
    """A base class to put before a linear layer's own.

    `weight` is `packed` in the layer's own forward pass, whose product uses the codes, and the dequantized weight
    everywhere else.
    """

    packed: Packed
    computing = False

    @property
    def weight(self) -> paddle.Tensor | Packed:
        """The packed weight in the layer's forward pass, else the dequantized one."""
        return self.packed if self.computing else dequantize(self.packed)

    def forward(self, *args, **kwargs):
        """Run the layer's forward pass with the packed weight."""
        self.computing = True
        try:
            with linear_replaced():
                return super().forward(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]  # the layer's class
        finally:
            self.computing = False


class QuantizedHead:
    """A base class to put before an output layer's own."""

    packed: PackedColumns

    def forward(self, hidden_states, *args, **kwargs):
        """Return the logits."""
        return linear(hidden_states, self.packed)


def quantize_filled(family: Family, format: Format) -> Callable[[Fill], None]:
    """Return load_model's callback for each tensor, which quantizes weights of linear layers and releases them."""

    def quantize_one(fill: Fill) -> None:
        if format.takes(fill.name, _is_linear_weight(fill.name, family)):
            exact = _exact_rows(fill) if format.algo == "llm.int8" else None
            fill.parameter.packed = _packed(fill.name, fill.parameter, format, exact)
            fill.release()

    return quantize_one


def use_quantized(model, format: Format) -> str:
    """Make the layers of a model compute with their quantized weights, after all adapters are in place.

    Returns a line about it.
    """
    for layer in model.sublayers():
        _swap(layer)
    return describe([layer for layer in model.sublayers() if hasattr(layer, "packed")], format)


def use_quantized_head(model) -> None:
    """Make a quantized output layer compute with its codes, before anything else is put before its class."""
    for layer in model.sublayers():
        if isinstance(_packed_of(layer), PackedColumns):
            _swap(layer)


def random_model(model_class, config, dtype: str, format: Format):
    """Return a model with random weights, each linear layer's quantized at once; use_quantized is to follow.

    Norms, embedding and head are drawn as the family's model does, linear layers with its initializer_range.
    """
    config.dtype = dtype
    model = without_values(model_class, config, dtype)
    family = family_of_config(config.to_dict())
    deviation = getattr(config, "initializer_range", 0.02)
    for name, layer in model.named_sublayers(include_self=True):
        # A head that shares the embedding's weight comes a second time, and has been drawn.
        parameters = {key: value for key, value in layer._parameters.items() if value is not None and value._init_func}
        for parameter in parameters.values():
            parameter.initialize()
        of_weight = f"{name}.weight"
        if "weight" in parameters and format.takes(of_weight, _is_linear_weight(of_weight, family)):
            weight = parameters["weight"]
            values = paddle.tensor.random.gaussian(weight.shape, std=deviation, dtype=dtype)
            weight.packed = _packed(of_weight, values, format)
            weight._clear_data()
        elif parameters:
            with dtype_guard(dtype):
                model._init_weights(layer)
    if isinstance(model, PipelineLayer):
        model._synchronize_shared_weights()
    return model


def describe(layers: list, format: Format) -> str:
    """Return one line about the quantized layers."""
    parts = [part for layer in layers for part in getattr(layer.packed, "parts", [layer.packed])]
    weights = sum(part.shape[0] * part.shape[1] for part in parts)
    nbytes = sum(part.nbytes for part in parts)
    changed, whole = (sum(part.squares[i] for part in parts) for i in (0, 1))
    by_kernel = sum(part.by_kernel for part in parts)
    kernels = f" ({by_kernel} on Paddle's kernels)" if by_kernel else ""
    others = [packed for packed in parts if not packed.by_kernel and cuda_kernels.on_card(packed.codes)]
    reasons = dict.fromkeys(cuda_kernels.why_not(one.format.algo, one.shape, one.dtype) for one in others)
    if reasons:
        kernels += f" ({len(parts) - by_kernel} not on Paddle's kernels: {'; '.join(reasons)})"
    heads = sum(isinstance(layer, QuantizedHead) for layer in layers)
    head = " and the output layer" if heads else ""
    return (
        f"base: {len(layers) - heads} linear layers{head} in {format.algo}{kernels}, "
        f"{8 * nbytes / weights:.2f} bits a weight, "
        f"{nbytes / 1e9:.2f} GB; rounding is {100 * math.sqrt(changed / whole):.2f} % of the weights (rms)"
    )


def _packed(name: str, weight: paddle.Tensor, format: Format, exact: ExactRows | None = None) -> Packed | PackedColumns:
    return PackedColumns.of(weight, format) if name == HEAD_WEIGHT else quantize(weight, format, exact)


def _is_linear_weight(name: str, family: Family) -> bool:
    layer, _, last = name.rpartition(".")
    return last == "weight" and layer.rpartition(".")[2] in family.linear_layers


def _exact_rows(fill: Fill) -> ExactRows:
    def read(columns: list[int]) -> paddle.Tensor:
        rows = np.ascontiguousarray(fill.part(fill.stored.open())[columns])
        return paddle.to_tensor(convert(rows, fill.stored.dtype, "float32"))

    return ExactRows(read, fill.parameter.shape[0], fill.dtype)


def _packed_of(layer) -> Packed | PackedColumns | None:
    return getattr(layer._parameters.get("weight"), "packed", None)


def _swap(layer) -> None:
    if not (packed := _packed_of(layer)):
        return
    del layer._parameters["weight"]
    layer.packed = packed
    kind = QuantizedHead if isinstance(packed, PackedColumns) else QuantizedWeight
    layer.__class__ = type(f"Quantized{type(layer).__name__}", (kind, type(layer)), {})
    if "linear" in vars(layer):  # fleet's layers keep the function that they were made with
        layer.linear = linear

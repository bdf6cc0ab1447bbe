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
from typing import Literal

import paddle
import paddle.nn.functional as F
from paddle.autograd import PyLayer

from launch.adapters.quantized import cuda_kernels
from launch.adapters.quantized.quantization import KEPT, LARGEST, Packed, dequantize, no_zeros, whole_codes

LARGEST_FLOAT16 = 65504.0
THRESHOLD = 6.0  # the paper's, and the default of bitsandbytes and of paddle.nn.quant.llm_int8_linear


def columns_apart(inputs: paddle.Tensor, packed: Packed) -> list[int]:
    """inputs: [..., inputs]. The columns with a value of at least THRESHOLD, and those of the weight's large rows."""
    return sorted({*outlier_columns(inputs), *packed.apart})


def outlier_columns(inputs: paddle.Tensor) -> list[int]:
    large = (inputs.reshape([-1, inputs.shape[-1]]).abs() >= THRESHOLD).any(axis=0)
    return large.nonzero().flatten().tolist()  # pyright: ignore[reportReturnType]  # of one axis


@paddle.no_grad()
def product_with_outliers(inputs: paddle.Tensor, columns: list[int], packed: Packed) -> paddle.Tensor:
    """inputs [..., inputs] x weight [inputs, outputs], in the inputs' dtype. columns: those that are computed apart."""
    flat = inputs.reshape([-1, packed.shape[0]])
    outputs = rounded_product(_without(flat, columns), packed)
    if columns:
        chosen = paddle.to_tensor(columns)
        outputs += paddle.matmul(flat.index_select(chosen, axis=1), rows_of(packed, columns).astype(flat.dtype))
    return outputs.reshape([*inputs.shape[:-1], packed.shape[1]])


@paddle.no_grad()
def input_gradient(gradient: paddle.Tensor, columns: list[int], packed: Packed) -> paddle.Tensor:
    """Of a loss by the inputs, from that by the outputs [..., outputs]: rounding passes it on as it is."""
    weight = dequantize(packed).astype(gradient.dtype)
    if columns:
        weight[paddle.to_tensor(columns)] = rows_of(packed, columns).astype(gradient.dtype)
    return paddle.matmul(gradient, weight, transpose_y=True)


def rounded_product(inputs: paddle.Tensor, packed: Packed) -> paddle.Tensor:
    """inputs [n, inputs]: plain absmax in 8 bits, vector-wise. By a kernel, or in the inputs' dtype: whole numbers are
    exact in 16 bits, too, also times a power of two, by which sums stay below float16's largest number. Sums themselves
    are made in float32, and rounded to 16 bits once."""
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
    """[columns, outputs]: the weight's rows that outliers are multiplied with."""
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

    read: gives the rows of these numbers, [rows, outputs]. inputs: rows that there are. dtype: of training
    """

    def __init__(self, read: Callable[[list[int]], paddle.Tensor], inputs: int, dtype: str):
        self.read = read
        self.most = max(2 * inputs // KEPT, 1)  # the large rows, and as many for outliers
        self.dtype: Literal["bfloat16", "float16"] = "bfloat16" if dtype == "bfloat16" else "float16"
        self.kept: dict[int, paddle.Tensor] = {}

    def __call__(self, columns: list[int]) -> paddle.Tensor:
        """[columns, outputs]. Whether they were kept changes nothing but the time that it takes."""
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
    """paddle.nn.functional.linear, which also takes a Packed for its weight."""
    if not isinstance(weight, Packed):
        return stock_linear(x, weight, bias, name)
    outputs = (Int8Product if weight.format.algo == "llm.int8" else Product).apply(x, weight)
    return outputs if bias is None else outputs + bias


@contextmanager
def linear_replaced() -> Iterator[None]:
    """Within, layers that call paddle.nn.functional.linear call ours."""
    before, F.linear = F.linear, linear
    try:
        yield
    finally:
        F.linear = before


class Product(PyLayer):
    """With the numbers that codes stand for, which have memory while they are used, in each pass anew.

    Whatever automatic mixed precision does around it, it computes in the dtype of the weight, and codes times scales in
    float32: as float16, scales would be rounded to nothing, and sums of whole numbers too large.
    """

    @staticmethod
    def forward(ctx, x, packed):
        ctx.packed, ctx.dtype = packed, x.dtype
        with paddle.amp.auto_cast(False):
            x = x.astype(packed.dtype)
            if packed.by_kernel:
                return cuda_kernels.product(x, packed.codes, packed.scales, packed.format.algo)
            return paddle.matmul(x, dequantize(packed))

    @staticmethod
    def backward(ctx, gradient):
        with paddle.amp.auto_cast(False):
            weight = dequantize(ctx.packed).astype(gradient.dtype)
            return paddle.matmul(gradient, weight, transpose_y=True).astype(ctx.dtype)


class Int8Product(PyLayer):
    """Of LLM.int8."""

    @staticmethod
    def forward(ctx, x, packed):
        ctx.packed, ctx.dtype = packed, x.dtype
        ctx.columns = columns_apart(x, packed)
        with paddle.amp.auto_cast(False):
            return product_with_outliers(x.astype(packed.dtype), ctx.columns, packed)

    @staticmethod
    def backward(ctx, gradient):
        with paddle.amp.auto_cast(False):
            return input_gradient(gradient, ctx.columns, ctx.packed).astype(ctx.dtype)

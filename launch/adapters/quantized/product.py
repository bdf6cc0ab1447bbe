"""A linear layer's product with a weight in 8 or 4 bits, and its gradient by the inputs, of which it keeps nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

import paddle
import paddle.nn.functional as F
from paddle.autograd import PyLayer

from launch.adapters.quantized import cuda_kernels, llm_int8
from launch.adapters.quantized.quantization import Packed, dequantize

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
        ctx.columns = llm_int8.columns_apart(x, packed)
        with paddle.amp.auto_cast(False):
            return llm_int8.product(x.astype(packed.dtype), ctx.columns, packed)

    @staticmethod
    def backward(ctx, gradient):
        with paddle.amp.auto_cast(False):
            return llm_int8.input_gradient(gradient, ctx.columns, ctx.packed).astype(ctx.dtype)

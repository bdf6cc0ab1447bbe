"""Layers on Paddle's kernels, which are replaced by what they are documented to do, for test_cuda_kernels.py."""

import numpy as np
import paddle

from launch.adapters.quantized import cuda_kernels
from launch.adapters.quantized.llm_int8 import ExactRows
from launch.adapters.quantized.product import linear
from launch.adapters.quantized.quantization import Format, dequantize, quantize

INPUTS, OUTPUTS = 256, 128


class Documented:
    """paddle.nn.quant on a CPU: codes are those of the transposed weight, in an order that nobody else knows."""

    def __init__(self, fault: str = ""):
        self.fault = fault
        self.products: list[str] = []

    def weight_quantize(self, x, algo):
        if self.fault == "absent":
            raise RuntimeError("weight_quantize: no kernel for this card")
        largest = 7 if algo == "weight_only_int4" else 127
        scales = x.astype("float32").abs().max(axis=0) / largest
        scales = paddle.where(scales == 0, paddle.ones_like(scales), scales)
        codes = (x.astype("float32") / scales).round().numpy().astype("int8").T
        return paddle.to_tensor(codes[::-1].copy()), scales

    def weight_dequantize(self, codes, scales, algo):
        weight = paddle.to_tensor(codes.numpy()[::-1].T.astype("float32")) * scales
        return weight.T if self.fault == "transposed" else weight

    def weight_only_linear(self, x, weight, bias, weight_scale, weight_dtype):
        self.products.append(weight_dtype)
        return paddle.matmul(x, self.weight_dequantize(weight, weight_scale, "")) * (2 if self.fault == "wrong" else 1)

    def llm_int8_linear(self, x, weight, bias, weight_scale, threshold=6.0):
        self.products.append("llm")
        assert float(x.abs().max()) < threshold
        return paddle.matmul(x, self.weight_dequantize(weight, weight_scale, ""))


def layer(algo: str, fault: str = "") -> dict:
    """One linear layer in float32, which the kernels are told to take.

    "kernel": whether it is used; "off", "gradient off": how far outputs and inputs' gradient are from those of a dense
    layer with the weights that the codes stand for, as a part of the largest; "rounding": of the weights.
    """
    kernels = cuda_kernels.quant = Documented(fault)
    cuda_kernels.HALF = (paddle.float32,)
    cuda_kernels.on_card = lambda weight: True
    draw = np.random.default_rng(0)
    weight = paddle.to_tensor(draw.normal(0, 0.02, (INPUTS, OUTPUTS)).astype("float32"))
    weight[7] *= 20
    values = draw.standard_normal((3, 5, INPUTS)).astype("float32").clip(-5, 5)
    values[..., [3, 90]] *= 30
    exact = ExactRows(lambda rows: weight.index_select(paddle.to_tensor(rows), axis=0), INPUTS, "float16")
    packed = quantize(weight, Format(algo), exact if algo == "llm.int8" else None)
    stands_for = dequantize(packed)
    kernels.products.clear()
    found = [_with_gradient(values, lambda x: linear(x, packed))]
    used = bool(kernels.products)
    found.append(_with_gradient(values, lambda x: paddle.matmul(x, stands_for)))
    (outputs, gradient), (dense_outputs, dense_gradient) = found
    return {
        "kernel": packed.by_kernel and used,
        "off": float(np.abs(outputs - dense_outputs).max() / np.abs(dense_outputs).max()),
        "gradient off": float(np.abs(gradient - dense_gradient).max() / np.abs(dense_gradient).max()),
        "rounding": float((stands_for - weight).abs().max() / weight.abs().max()),
    }


def _with_gradient(values: np.ndarray, product) -> tuple[np.ndarray, np.ndarray]:
    x = paddle.to_tensor(values, stop_gradient=False)
    outputs = product(x)
    outputs.square().sum().backward()
    return outputs.numpy(), x.grad.numpy() / np.abs(outputs.numpy()).max()

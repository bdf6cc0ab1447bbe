"""Layers on Paddle's kernels, which are replaced by what they are documented to do, for test_cuda_kernels.py."""

from types import SimpleNamespace

import numpy as np
import paddle

from launch.adapters import cuda_kernels
from launch.adapters import quantized_layers as quantized_base
from launch.adapters.quantization import Format, dequantize, quantize
from launch.adapters.quantized_layers import ExactRows, linear

INPUTS, OUTPUTS = 256, 128


class Documented:
    """paddle.nn.quant on a CPU, as the sources of 3.3.1 have it: weight_only codes are those of the transposed weight
    in an order that nobody else knows; llm_int8_linear takes plain ones, and has neither right scales nor a
    dequantizer."""

    def __init__(self, fault: str = ""):
        self.fault = fault
        self.products: list[str] = []
        self.rows: list[int] = []

    def weight_quantize(self, x, algo):
        if self.fault == "absent":
            raise RuntimeError("weight_quantize: no kernel for this card")
        largest = 7 if algo == "weight_only_int4" else 127
        scales = x.astype("float32").abs().max(axis=0) / largest
        scales = paddle.where(scales == 0, paddle.ones_like(scales), scales)
        codes = (x.astype("float32") / scales).round().numpy().astype("int8").T
        if algo == "llm.int8":  # four of eight are written
            return paddle.to_tensor(codes), scales * (paddle.arange(scales.shape[0]) % 8 < 4).astype("float32")
        return paddle.to_tensor(codes[::-1].copy()), scales

    def weight_dequantize(self, codes, scales, algo):
        if algo == "llm.int8":  # no branch for it: memory as it was
            return paddle.full(codes.shape[::-1], 7.0)
        weight = paddle.to_tensor(codes.numpy()[::-1].T.astype("float32")) * scales
        return weight.T if self.fault == "transposed" else weight

    def weight_only_linear(self, x, weight, bias, weight_scale, weight_dtype):
        self.products.append(weight_dtype)
        wrong = self.fault == "wrong" or (self.fault == "wrong alone" and x.size == x.shape[-1])
        return paddle.matmul(x, self.weight_dequantize(weight, weight_scale, "")) * (2 if wrong else 1)

    def llm_int8_linear(self, x, weight, bias, weight_scale, threshold=6.0):
        self.products.append("llm")
        self.rows.append(x.shape[0])
        assert float(x.abs().max()) < threshold
        if self.fault == "cublaslt":
            raise OSError("(External) cublasLtMatmul execution error, refer https://... (at cublaslt.h:207)\n")
        dense = paddle.to_tensor(weight.numpy().T.astype("float32")) * weight_scale
        return paddle.matmul(x, dense) * (2 if self.fault == "wrong alone" and x.shape[0] == 1 else 1)


def observe(layers: list, rows: list[int], cases: list) -> dict:
    """Return what each of the functions below finds, of [algo, fault], numbers of samples and [algo, shape, dtype]."""
    stock = dict(vars(cuda_kernels))
    reasons = [cuda_kernels.why_not(algo, shape, getattr(paddle, dtype)) for algo, shape, dtype in cases]
    found = []
    for algo, fault in layers:
        cuda_kernels.fault_of.cache_clear()
        found.append(_layer(algo, fault))
    vars(cuda_kernels).update(stock)
    return {"layers": found, "rows": [_rows_at_once(samples) for samples in rows], "reasons": reasons}


def _layer(algo: str, fault: str = "") -> dict:
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
    kernels.rows.clear()
    found = [_with_gradient(values, lambda x: linear(x, packed))]
    used = bool(kernels.products)
    found.append(_with_gradient(values, lambda x: paddle.matmul(x, stands_for)))
    (outputs, gradient), (dense_outputs, dense_gradient) = found
    return {
        "kernel": packed.by_kernel and used,
        "why not": cuda_kernels.why_not(algo, packed.shape, packed.dtype),
        "said": quantized_base.describe([SimpleNamespace(packed=packed)], packed.format),
        "off": float(np.abs(outputs - dense_outputs).max() / np.abs(dense_outputs).max()),
        "gradient off": float(np.abs(gradient - dense_gradient).max() / np.abs(dense_gradient).max()),
        "rounding": float((stands_for - weight).abs().max() / weight.abs().max()),
    }


def _with_gradient(values: np.ndarray, product) -> tuple[np.ndarray, np.ndarray]:
    x = paddle.to_tensor(values, stop_gradient=False)
    outputs = product(x)
    outputs.square().sum().backward()
    return outputs.numpy(), x.grad.numpy() / np.abs(outputs.numpy()).max()


def _rows_at_once(samples: int) -> list[int]:
    """The inputs' rows of each call of llm_int8_linear, for a product that is right."""
    kernels = cuda_kernels.quant = Documented()
    codes, scales = paddle.ones([128, 64], "int8"), paddle.ones([128])
    inputs = paddle.arange(samples, dtype="float32").unsqueeze(1) / samples * paddle.ones([1, 64])
    found = cuda_kernels.product(inputs, codes, scales, "llm.int8")
    assert np.allclose(found.numpy(), 64 * inputs.numpy()[:, :1], rtol=1e-5)
    return kernels.rows

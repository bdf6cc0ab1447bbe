"""Paddle's own kernels for weights in 8 and 4 bits on NVIDIA cards: weight_only_linear and llm_int8_linear.

They read codes in an order of their own, which depends on the card, and which weight_quantize makes. A kernel is used
once it has given, in this process and on its card, what a dense product gives; else the reference path computes
(quantization.py), as on every other device, and for nf4 and fp4, which Paddle has no kernels for.
None of this has been run on a card: the tests replace Paddle's functions.
"""

from functools import lru_cache

import numpy as np
import paddle
from paddle.nn import quant

WEIGHT_DTYPES = {"weight_only_int8": "int8", "weight_only_int4": "int4", "llm.int8": "int8"}
HALF = (paddle.float16, paddle.bfloat16)
MULTIPLE = 64  # of inputs and outputs, which the kernels' tiles want
# How far the product of a trial may be off, as a part of its largest number: several times what rounding costs.
TOLERANCE = {"weight_only_int8": 0.03, "weight_only_int4": 0.3, "llm.int8": 0.05}
TRIED = (256, 128)  # inputs and outputs of a trial


def can_take(algo: str, weight: paddle.Tensor) -> bool:
    """Whether a kernel for this format is here that computes with such a weight rightly."""
    if algo not in WEIGHT_DTYPES or weight.dtype not in HALF or not on_card(weight):
        return False
    return all(size % MULTIPLE == 0 for size in weight.shape) and computes_rightly(algo, weight.dtype)


def on_card(weight: paddle.Tensor) -> bool:
    return weight.place.is_gpu_place()


def codes_of(weight: paddle.Tensor, algo: str) -> tuple[paddle.Tensor, paddle.Tensor]:
    """weight: [inputs, outputs]. (codes in the kernel's order, a scale for each output)"""
    return quant.weight_quantize(weight, algo=algo)


def dequantized(codes: paddle.Tensor, scales: paddle.Tensor, algo: str) -> paddle.Tensor:
    """[inputs, outputs]: the numbers that codes stand for."""
    return quant.weight_dequantize(codes, scales, algo=algo)


def product(inputs: paddle.Tensor, codes: paddle.Tensor, scales: paddle.Tensor, algo: str) -> paddle.Tensor:
    """inputs: [..., inputs], for llm.int8 without outliers."""
    if algo == "llm.int8":
        return quant.llm_int8_linear(inputs, codes, None, scales)
    return quant.weight_only_linear(inputs, codes, None, scales, weight_dtype=WEIGHT_DTYPES[algo])


@lru_cache
def computes_rightly(algo: str, dtype: paddle.dtype) -> bool:
    """Tried on normal numbers: product and weight are what a dense layer has, but for rounding."""
    draw = np.random.default_rng(0)
    inputs = paddle.to_tensor(draw.standard_normal((4, TRIED[0])).clip(-5, 5).astype("float32")).astype(dtype)
    weight = paddle.to_tensor(draw.standard_normal(TRIED).astype("float32")).astype(dtype)
    try:
        codes, scales = codes_of(weight, algo)
        found = product(inputs, codes, scales, algo), dequantized(codes, scales, algo)
    except (RuntimeError, ValueError, AssertionError, NotImplementedError):
        return False  # not for this card, or not in this build
    expected = paddle.matmul(inputs.astype("float32"), weight.astype("float32")), weight
    return all(_near(one, other, TOLERANCE[algo]) for one, other in zip(found, expected, strict=True))


def _near(found: paddle.Tensor, expected: paddle.Tensor, tolerance: float) -> bool:
    if found.shape != expected.shape:
        return False
    found, expected = found.astype("float32"), expected.astype("float32")
    return float((found - expected).abs().max()) <= tolerance * float(expected.abs().max())

"""Paddle's own kernels for weights in 8 and 4 bits on NVIDIA cards: weight_only_linear and llm_int8_linear.

weight_only_linear reads codes in an order of its own, which depends on the card, and which weight_quantize makes.
llm_int8_linear reads plain codes, [outputs, inputs], on every card; they are ours, because Paddle 3.3.1's
weight_quantize writes four of every eight of its scales only (per_channel_quant_gpu in
phi/kernels/impl/weight_quantize_kernel_gpu_impl.h stores 16 bytes of 8 float32), and its weight_dequantize knows
weight_only_int8 and weight_only_int4 alone.

A kernel is used once it has given, in this process and on its card, what a dense product gives; else the reference path
computes (quantization.py), as on every other device, and for nf4 and fp4, which Paddle has no kernels for.
None of this has been run on a card: the tests replace Paddle's functions.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import paddle
from paddle.nn import quant

WEIGHT_DTYPES = {"weight_only_int8": "int8", "weight_only_int4": "int4", "llm.int8": "int8"}
HALF = (paddle.float16, paddle.bfloat16)
MULTIPLE = 64  # of inputs and outputs, which the kernels' tiles want
# llm_int8_linear finds outliers with one block of a thread for each 32 inputs, 1024 at most (UpdateOutlier in
# phi/kernels/impl/llm_int8_matmul_kernel_impl.h); more inputs fail without a word.
LLM_INT8_INPUTS = 32 * 1024
# Rows of its inputs that it takes at once. A block of threads that takes a second row counts the largest number of its
# first row in again (ReduceAbsMaxKernel, ibid.); a card has more blocks than this: 16 times its multiprocessors, times
# those that run together on one.
LLM_INT8_ROWS = 2048
# How far the product of a trial may be off, as a part of its largest number: several times what rounding costs.
TOLERANCE = {"weight_only_int8": 0.03, "weight_only_int4": 0.3, "llm.int8": 0.05}
TRIED = (256, 128)  # inputs and outputs of a trial
# Rows of a trial's inputs. weight_only_linear has kernels of their own for 1, 2 and 3 rows, llm_int8_linear another
# tile from 128 on (phi/kernels/gpu/weight_only_linear_kernel.cu, phi/kernels/funcs/cublaslt.h).
TRIED_ROWS = (1, 2, 3, 4, 160)


def can_take(algo: str, weight: paddle.Tensor) -> bool:
    """Return whether a kernel for this format exists in this process and computes correctly with such a weight."""
    return on_card(weight) and not why_not(algo, weight.shape, weight.dtype)


def on_card(weight: paddle.Tensor) -> bool:
    """Return whether a weight lies on a card."""
    return weight.place.is_gpu_place()


def why_not(algo: str, shape: Sequence[int], dtype: paddle.dtype) -> str:
    """Return why no kernel of this process's card takes a weight [inputs, outputs]; "" where one does."""
    if algo not in WEIGHT_DTYPES:
        return "Paddle has none for this format"
    if dtype not in HALF:
        return f"they take float16 and bfloat16, not {str(dtype).removeprefix('paddle.')}"
    if any(size % MULTIPLE for size in shape):
        return f"they take multiples of {MULTIPLE}, not {shape[0]} x {shape[1]}"
    if algo == "llm.int8" and shape[0] > LLM_INT8_INPUTS:
        return f"llm_int8_linear takes {LLM_INT8_INPUTS} inputs at most, not {shape[0]}"
    return fault_of(algo, dtype)


def codes_of(weight: paddle.Tensor, algo: str) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Return (codes in the kernel's order, a scale for each output) of a weight [inputs, outputs]; not for llm.int8."""
    return quant.weight_quantize(weight, algo=algo)  # pyright: ignore[reportArgumentType]  # one of the stub's


def dequantized(codes: paddle.Tensor, scales: paddle.Tensor, algo: str) -> paddle.Tensor:
    """Return [inputs, outputs]: the numbers of the codes of codes_of."""
    return quant.weight_dequantize(codes, scales, algo=algo)  # pyright: ignore[reportArgumentType]  # one of the stub's


def by_outputs(codes: paddle.Tensor, shape: tuple[int, int]) -> paddle.Tensor:
    """Return int8 [inputs x outputs] as [outputs, inputs], for llm_int8_linear."""
    return codes.reshape(shape).T.contiguous()


def product(inputs: paddle.Tensor, codes: paddle.Tensor, scales: paddle.Tensor, algo: str) -> paddle.Tensor:
    """Return the product of inputs [..., inputs] with a quantized weight; for llm.int8 [n, inputs] without outliers."""
    if algo != "llm.int8":
        dtype = WEIGHT_DTYPES[algo]
        return quant.weight_only_linear(inputs, codes, None, scales, weight_dtype=dtype)  # pyright: ignore[reportArgumentType]  # one of the stub's
    starts = range(0, inputs.shape[0], LLM_INT8_ROWS)
    rows = [inputs[start : start + LLM_INT8_ROWS] for start in starts] if len(starts) > 1 else [inputs]
    products = [quant.llm_int8_linear(some, codes, None, scales) for some in rows]
    return paddle.concat(products) if len(products) > 1 else products[0]


@lru_cache
def fault_of(algo: str, dtype: paddle.dtype) -> str:
    """Return what is wrong with a kernel on normal numbers; "" where it equals a dense layer, but for rounding.

    Any exception of the kernel means no: cuBLASLt's refusal of a card, for one, is an OSError.
    """
    draw = np.random.default_rng(0)
    values = draw.standard_normal((max(TRIED_ROWS), TRIED[0])).clip(-5, 5).astype("float32")
    weight = paddle.to_tensor(draw.standard_normal(TRIED).astype("float32")).astype(dtype)
    try:
        if algo == "llm.int8":
            scales = weight.astype("float32").abs().max(axis=0) / 127
            codes = by_outputs((weight.astype("float32") / scales).round().astype("int8"), TRIED)
        else:
            codes, scales = codes_of(weight, algo)
            if not _near(dequantized(codes, scales, algo), weight, TOLERANCE[algo]):
                return "on trial its codes did not stand for the weights"
        for rows in TRIED_ROWS:
            inputs = paddle.to_tensor(values[:rows]).astype(dtype)
            expected = paddle.matmul(inputs.astype("float32"), weight.astype("float32"))
            if not _near(product(inputs, codes, scales, algo), expected, TOLERANCE[algo]):
                return f"on trial its product of {rows} rows was wrong"
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return f"on trial it raised {type(error).__name__}: {lines[-1][:200] if lines else 'no reason given'}"
    return ""


def _near(found: paddle.Tensor, expected: paddle.Tensor, tolerance: float) -> bool:
    if found.shape != expected.shape:
        return False
    found, expected = found.astype("float32"), expected.astype("float32")
    return float((found - expected).abs().max()) <= tolerance * float(expected.abs().max())

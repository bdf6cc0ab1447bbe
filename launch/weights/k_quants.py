"""Weights packed into ggml's Q4_K and Q6_K, which the package gguf only unpacks, and llama.cpp's choice of a type.

A block has 256 elements. Q4_K: 8 parts of 32, of each a scale and a minimum in 6 bits, elements in 4. Q6_K: 16 parts of
16, of each a scale in 8 bits, elements in 6. The layouts are those of ggml-common.h. As ggml-quants.c does, each part
tries several scales around that of its largest element and keeps the one with the least weighted squared error.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

BLOCK = 256
PIECE_BLOCKS = 512  # 512 KB of float32: what a core's cache holds
THREADS = 2  # NumPy leaves the interpreter's lock
TINY = np.float32(1e-30)
# What stands in for a type whose blocks do not divide the rows.
SUBSTITUTES = {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}


def kind_of(name: str, shape: tuple[int, ...], quant: str, layers: int, experts: int, tied: bool) -> str:
    """Return the ggml type of a tensor of a file that is called `quant`. name: GGUF's. layers, experts: of the model.

    F32 for vectors and routers; more bits for the output layer and, in Q4_K_M, for values and the second matrices of
    some layers, as for the small matrices of attention beside 8 experts or in 80 layers. Where llama.cpp takes Q5_K,
    which is not packed here, Q6_K.
    """
    *place, part, _ = name.split(".")
    layer = int(place[1]) if place else 0
    if len(shape) == 1 or part == "ffn_gate_inp":
        return "F32"
    if quant in ("F32", "F16", "BF16", "Q8_0"):
        kind = quant
    elif part == "output" or (part == "token_embd" and tied):
        kind = "Q6_K"
    elif quant == "Q4_K_M":
        more = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
        more = more and part.startswith(("attn_v", "ffn_down"))
        kind = "Q6_K" if more or (part, experts) == ("attn_output", 8) or (part, layers) == ("attn_v", 80) else "Q4_K"
    else:
        kind = quant
    if kind.startswith("Q") and part in ("attn_k", "attn_v") and experts == 8:
        kind = "Q8_0"
    columns = shape[-1]
    if kind in SUBSTITUTES and columns % BLOCK:
        kind = SUBSTITUTES[kind]
    return "F16" if kind.startswith("Q") and columns % 32 else kind


def pack(rows: np.ndarray, kind: str) -> np.ndarray:
    """Return float32 rows in a ggml type, uint8 [rows, bytes]."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import quantize

    packing = {"Q4_K": _q4_k, "Q6_K": _q6_k}.get(kind)
    if packing is None:
        return np.ascontiguousarray(quantize(rows, GGMLQuantizationType[kind])).view(np.uint8).reshape(len(rows), -1)
    blocks = rows.reshape(-1, BLOCK)
    pieces = [blocks[start : start + PIECE_BLOCKS] for start in range(0, len(blocks), PIECE_BLOCKS)]
    with ThreadPoolExecutor(THREADS) as pool:
        return np.concatenate([*pool.map(packing, pieces)]).reshape(len(rows), -1)


def _q4_k(blocks: np.ndarray) -> np.ndarray:
    """Return 144 bytes a block: two float16, 12 bytes of scales and minima, 128 of elements."""
    parts = blocks.reshape(-1, 8, 32)
    scale, least = _scale_and_minimum(parts)
    whole, whole_least = scale.max(axis=1, keepdims=True) / 63, least.max(axis=1, keepdims=True) / 63
    scales = _rounded(scale / np.maximum(whole, TINY), 0, 63)
    minima = _rounded(least / np.maximum(whole_least, TINY), 0, 63)
    head = np.concatenate([whole, whole_least], axis=1).astype("<f2")
    real = head.astype(np.float32)
    step, offset = (real[:, :1] * scales)[..., None], (real[:, 1:] * minima)[..., None]
    codes = _rounded((parts + offset) / np.where(step > 0, step, np.inf), 0, 15).astype(np.uint8)
    low, high = codes[:, 0::2], codes[:, 1::2]
    s, m = scales.astype(np.uint8), minima.astype(np.uint8)
    packed = np.concatenate(
        [s[:, :4] | (s[:, 4:] >> 4) << 6, m[:, :4] | (m[:, 4:] >> 4) << 6, s[:, 4:] & 15 | (m[:, 4:] & 15) << 4], axis=1
    )
    return np.concatenate([head.view(np.uint8), packed, (low | high << 4).reshape(-1, 128)], axis=1)


def _scale_and_minimum(parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 [blocks, parts] twice: x is about scale * code - minimum, codes from 0 to 15, minima from 0 on."""
    largest, smallest = parts.max(axis=2), np.minimum(parts.min(axis=2), 0)
    weights = np.sqrt(np.mean(parts * parts, axis=2, keepdims=True)) + np.abs(parts)
    weighted = weights * parts
    sum_w, sum_x = weights.sum(axis=2), weighted.sum(axis=2)
    sum_xx = np.einsum("bpi,bpi->bp", weighted, parts)
    span = np.maximum(largest - smallest, TINY)
    best_scale, best_least, best_error = span / 15, -smallest, np.full(span.shape, np.inf, np.float32)
    shifted = parts - smallest[..., None]
    for top in (15, *(14 + step / 10 for step in range(21))):
        codes = np.rint(shifted * (np.float32(top) / span)[..., None]).clip(0, 15)
        sum_l, sum_xl = (np.einsum("bpi,bpi->bp", one, codes) for one in (weights, weighted))
        sum_ll = np.einsum("bpi,bpi,bpi->bp", weights, codes, codes)
        determinant = sum_w * sum_ll - sum_l * sum_l
        fits = determinant > 0
        divisor = np.where(fits, determinant, 1)
        scale = (sum_w * sum_xl - sum_x * sum_l) / divisor
        low = (sum_ll * sum_x - sum_l * sum_xl) / divisor
        above = low > 0
        low = np.where(above, 0, low)
        scale = np.where(above, sum_xl / np.maximum(sum_ll, TINY), scale)
        error = sum_xx + scale * scale * sum_ll + low * low * sum_w
        error = error - 2 * (scale * sum_xl + low * sum_x) + 2 * scale * low * sum_l
        better = fits & (error < best_error) & (scale > 0)
        best_scale, best_least = np.where(better, scale, best_scale), np.where(better, -low, best_least)
        best_error = np.where(better, error, best_error)
    return best_scale, best_least


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    """Return 210 bytes a block: lower 4 bits, upper 2 bits, 16 scales, a float16."""
    parts = blocks.reshape(-1, 16, 16)
    scale = _signed_scale(parts)
    place = np.abs(scale).argmax(axis=1)[:, None]
    whole = (np.take_along_axis(scale, place, axis=1) / -128).astype("<f2")
    real = whole.astype(np.float32)
    scales = _rounded(scale / np.where(real != 0, real, np.inf), -128, 127)
    step = (real * scales)[..., None]
    codes = _rounded(parts / np.where(step != 0, step, np.inf), -32, 31).astype(np.int8) + 32
    rows = codes.astype(np.uint8).reshape(-1, 2, 4, 32)  # halves of 128, each four times 32
    low = np.concatenate(
        [rows[:, :, 0] & 15 | (rows[:, :, 2] & 15) << 4, rows[:, :, 1] & 15 | (rows[:, :, 3] & 15) << 4], 2
    )
    upper = rows >> 4
    high = upper[:, :, 0] | upper[:, :, 1] << 2 | upper[:, :, 2] << 4 | upper[:, :, 3] << 6
    as_bytes = scales.astype(np.int8).view(np.uint8)
    return np.concatenate([low.reshape(-1, 128), high.reshape(-1, 64), as_bytes, whole.view(np.uint8)], axis=1)


def _signed_scale(parts: np.ndarray) -> np.ndarray:
    """Return float32 [blocks, parts]: x is about scale * code, for codes from -32 to 31."""
    place = np.abs(parts).argmax(axis=2)[..., None]
    extreme = np.take_along_axis(parts, place, axis=2)[..., 0]
    divisor = np.where(np.abs(extreme) > TINY, extreme, np.inf)
    weights, best, best_gain = parts * parts, np.zeros_like(extreme), np.zeros_like(extreme)
    weighted = weights * parts
    for step in range(-9, 10):
        codes = np.rint(parts * (-(32 + step / 10) / divisor).astype(np.float32)[..., None]).clip(-32, 31)
        sum_xl = np.einsum("bpi,bpi->bp", weighted, codes)
        sum_ll = np.maximum(np.einsum("bpi,bpi,bpi->bp", weights, codes, codes), TINY)
        gain = sum_xl * sum_xl / sum_ll
        better = gain > best_gain
        best, best_gain = np.where(better, sum_xl / sum_ll, best), np.where(better, gain, best_gain)
    return best


def _rounded(values: np.ndarray, least: int, most: int) -> np.ndarray:
    return np.rint(values).clip(least, most)

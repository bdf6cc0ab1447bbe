"""Quantization of weights to 8 and 4 bits, and back, with Paddle's plain operators on any device.

    packed = quantize(weight, Format("nf4", double_quant=True))
    weight = dequantize(packed)

A weight is processed in pieces of some rows: memory beyond it and its codes is that of PIECE float32 elements.

weight_only_int8, weight_only_int4  whole numbers from -127 to 127 (-7 to 7) times one scale for each output
llm.int8     the weights of weight_only_int8; inputs are rounded, too, when they are used (product.py)
nf4, fp4     one of 16 numbers between -1 and 1 times one scale for each block of --weight_blocksize weights in a row:
             nf4 has a sixteenth of a normal distribution around each (QLoRA, arXiv 2305.14314, appendix E), fp4 is a
             sign, two bits of exponent and one of mantissa (bitsandbytes, FP4). With --weight_double_quant the scales,
             less their mean, are themselves codes of 8 bits times a scale for each --weight_double_quant_block_size
             of them, on the dynamic scale of arXiv 2110.02861.

Two codes of 4 bits share a byte.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import paddle

from launch.adapters import cuda_kernels
from launch.tape.quantized import PIECE, Format

NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
FP4_POSITIVE = (0.0, 0.0625 / 12, 2 / 12, 3 / 12, 4 / 12, 6 / 12, 8 / 12, 1.0)
TABLES = {
    "nf4": NF4,
    "fp4": tuple(sorted({-value for value in FP4_POSITIVE} | set(FP4_POSITIVE))),
    "weight_only_int4": tuple(map(float, range(-7, 8))),
}


def dynamic_table() -> tuple[float, ...]:
    """Return 256 numbers from -0.993 to 1: for each power of ten from -6 to 0 twice as many as for the one below."""
    numbers = [0.0, 1.0]
    for exponent in range(7):
        count = 2**exponent
        width = 0.9 / count
        means = [10.0 ** (exponent - 6) * (0.1 + (i + 0.5) * width) for i in range(count)]
        numbers += means + [-mean for mean in means]
    return tuple(sorted(numbers))


DYNAMIC = dynamic_table()


def blocks(tensor: paddle.Tensor, block: int) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Return (the tensor's elements in rows of `block`, the largest magnitude of each row).

    The last row is filled up with zeros.
    """
    flat = tensor.flatten()
    rows = paddle.nn.functional.pad(flat, [0, -flat.shape[0] % block]).reshape([-1, block])
    return rows, rows.abs().max(axis=1)


def no_zeros(scales: paddle.Tensor) -> paddle.Tensor:
    """Return the scales, 1 where all elements of a block are 0."""
    return paddle.where(scales == 0, paddle.ones_like(scales), scales)


def nearest(values: paddle.Tensor, table: tuple[float, ...]) -> paddle.Tensor:
    """Return the index of the nearest number in an ascending table; of two as near the lower one."""
    numbers = on_device(table)
    return paddle.bucketize(values, (numbers[1:] + numbers[:-1]) / 2, out_int32=True)


def on_device(table: tuple[float, ...]) -> paddle.Tensor:
    """Return the table as float32, copied from the host once for each device."""
    return _on_device(table, str(paddle.framework._current_expected_place()))


@lru_cache
def _on_device(table: tuple[float, ...], place: str) -> paddle.Tensor:
    return paddle.to_tensor(table, dtype="float32")


@lru_cache
def pair_table(table: tuple[float, ...]) -> tuple[float, ...]:
    """Return the two numbers of the codes in each of the 256 bytes in turn; 0 for codes without a number."""
    numbers = table + (0.0,) * (16 - len(table))
    return tuple(number for upper in numbers for lower in numbers for number in (upper, lower))


def scale_blocks_(numbers: paddle.Tensor, scales: paddle.Tensor, block: int) -> paddle.Tensor:
    """Return each number times its block's scale, float32 [n], in place where blocks are whole."""
    count = numbers.shape[0]
    if count % block:
        numbers = paddle.nn.functional.pad(numbers, [0, -count % block])
    rows = numbers.reshape([-1, block]).multiply_(scales.unsqueeze(1)).flatten()
    return rows[:count] if count % block else rows


def pack(codes: paddle.Tensor) -> paddle.Tensor:
    """Return codes below 16, uint8 [n], packed in pairs, uint8 [(n + 1) / 2]."""
    pairs = paddle.nn.functional.pad(codes.astype("int32"), [0, codes.shape[0] % 2]).reshape([-1, 2])
    return (pairs[:, 0] * 16 + pairs[:, 1]).astype("uint8")


LARGEST = {"weight_only_int8": 127, "weight_only_int4": 7, "llm.int8": 127}
# llm.int8: rows whose largest weight is so many times the median row's are no part of the scales, at most one in KEPT.
LARGE_ROW = 4.0
KEPT = 64


@dataclass(frozen=True)
class Packed:
    """A quantized tensor.

    Attributes:
        codes: int8 [n], or uint8 [n / 2] of two codes each, the first in the upper half, or uint8 [n] for scales.
        scales: float32, for each output or block; with double_quant packed themselves, after `offset` was
            subtracted.
        shape, dtype: Of the weight.
        exact, apart: For llm.int8, the function that reads rows before rounding by their numbers, None where there
            are none any more; rows that are always taken from there.
        by_kernel: Whether codes and scales are in the form of cuda_kernels.py.
        squares: The sums of squares of the rounding errors, and of the weight.
    """

    format: Format
    codes: paddle.Tensor
    scales: "paddle.Tensor | Packed"
    offset: paddle.Tensor | None
    shape: tuple[int, ...]
    dtype: paddle.dtype
    exact: Callable[[list[int]], paddle.Tensor] | None = None
    apart: tuple[int, ...] = ()
    by_kernel: bool = False
    squares: tuple[float, float] = (0.0, 0.0)

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scales."""
        scales = self.scales
        scales = scales.nbytes if isinstance(scales, Packed) else scales.element_size() * int(scales.size)
        return int(self.codes.size) + scales + (4 if self.offset is not None else 0)


@paddle.no_grad()
def quantize(
    weight: paddle.Tensor, format: Format, exact: Callable[[list[int]], paddle.Tensor] | None = None
) -> Packed:
    """Quantize a weight [inputs, outputs] of any floating-point dtype."""
    shape = tuple(weight.shape)
    apart: tuple[int, ...] = ()
    if exact:  # the rows of llm.int8, ascending, that would make the scales of all others coarse
        sizes = paddle.concat([rows.abs().max(axis=1) for rows in _pieces(weight, format)]).numpy()
        order = np.argsort(-sizes, kind="stable")[: len(sizes) // KEPT]
        apart = tuple(sorted(order[sizes[order] > LARGE_ROW * np.median(sizes)].tolist()))
    by_kernel = cuda_kernels.can_take(format.algo, weight)
    if by_kernel and format.algo != "llm.int8":
        codes, scales = cuda_kernels.codes_of(weight, format.algo)
        packed = Packed(format, codes, scales, None, shape, weight.dtype, by_kernel=True)
        return replace(packed, squares=_squares(weight, packed))
    offset = None
    if format.algo in LARGEST:
        # The largest magnitude of each output; rows that are apart do not count.
        largest = [rows.abs().max(axis=0) for rows in _pieces(_without(weight, apart), format)]
        scales = paddle.stack(largest).max(axis=0) / LARGEST[format.algo]
        codes = [_whole(rows, scales, LARGEST[format.algo]) for rows in _pieces(weight, format)]
    else:
        coded = [_coded_blocks(rows, format) for rows in _pieces(weight, format)]
        codes, scales = [codes for codes, _ in coded], paddle.concat([scales for _, scales in coded])
        if format.double_quant:
            offset = scales.mean()
            shifted = scales - offset
            values, largest = blocks(shifted, format.double_block)
            places = nearest(values / no_zeros(largest).unsqueeze(1), DYNAMIC).flatten()[: shifted.size].astype("uint8")
            double = Format("dynamic", format.double_block)
            scales = Packed(double, places, largest, None, tuple(shifted.shape), shifted.dtype)
    codes = paddle.concat([pack(piece) if format.bits == 4 else piece for piece in codes])
    if by_kernel:
        codes = cuda_kernels.by_outputs(codes, shape)
    packed = Packed(format, codes, scales, offset, shape, weight.dtype, exact, apart, by_kernel)
    return replace(packed, squares=_squares(weight, packed))


@paddle.no_grad()
def dequantize(packed: Packed) -> paddle.Tensor:
    """Return the weight in its own shape and dtype."""
    inputs, scales = packed.shape[0], _scales(packed)
    if packed.by_kernel and packed.format.algo != "llm.int8":
        assert not isinstance(packed.scales, Packed)  # the kernels know no scales in 8 bits
        weight = cuda_kernels.dequantized(packed.codes, packed.scales, packed.format.algo)
    elif _rows_of_a_piece(packed.shape, packed.format) >= inputs:
        weight = _rows(packed, scales, 0, inputs)
    else:
        weight = paddle.empty(packed.shape, packed.dtype)
        for start, stop in _places(packed.shape, packed.format):
            piece = weight[start:stop]
            # An assignment would copy twice; a name for the rows would keep them while the next ones are computed.
            piece.copy_(_rows(packed, scales, start, stop), False)  # pyright: ignore[reportCallIssue]
    if packed.apart:
        assert packed.exact is not None  # it reads the rows that are apart
        weight[paddle.to_tensor(packed.apart)] = packed.exact(list(packed.apart)).astype(packed.dtype)
    return weight


def whole_codes(packed: Packed, dtype: paddle.dtype) -> paddle.Tensor:
    """Return [inputs, outputs] of llm.int8: whole numbers from -127 to 127, which every dtype holds exactly."""
    return packed.codes.reshape(packed.shape).astype(dtype)


# ---- pieces of a weight


def _rows_of_a_piece(shape: Sequence[int], format: Format) -> int:
    """Return how many rows make a piece: codes fill whole bytes, and blocks are whole."""
    together = math.lcm(2, 1 if format.algo in LARGEST else format.block)
    return max(PIECE // shape[1] // together, 1) * together


def _places(shape: Sequence[int], format: Format) -> Iterator[tuple[int, int]]:
    """Yield (first row, one behind the last) of each piece."""
    step = _rows_of_a_piece(shape, format)
    for start in range(0, shape[0], step):
        yield start, min(start + step, shape[0])


def _pieces(weight: paddle.Tensor, format: Format) -> Iterator[paddle.Tensor]:
    """Yield the pieces of a weight in float32."""
    for start, stop in _places(weight.shape, format):
        yield weight[start:stop].astype("float32")


def _squares(weight: paddle.Tensor, packed: Packed) -> tuple[float, float]:
    changed = whole = 0.0
    rounded = dequantize(packed)
    for (start, stop), rows in zip(_places(packed.shape, packed.format), _pieces(weight, packed.format), strict=True):
        changed += float((rounded[start:stop].astype("float32") - rows).square().sum())
        whole += float(rows.square().sum())
    return changed, whole


def _without(weight: paddle.Tensor, rows: tuple[int, ...]) -> paddle.Tensor:
    """Return the weight with zeros in these rows."""
    if not rows:
        return weight
    kept = paddle.ones([weight.shape[0], 1], weight.dtype)
    kept[paddle.to_tensor(rows)] = 0
    return weight * kept


def _scales(packed: Packed) -> paddle.Tensor:
    """Return the scale of each output or block, float32."""
    if isinstance(packed.scales, Packed):
        inner = packed.scales
        assert packed.offset is not None and not isinstance(inner.scales, Packed)  # their mean; quantized once
        numbers = paddle.gather(on_device(DYNAMIC), inner.codes.astype("int32"))
        return scale_blocks_(numbers, inner.scales, inner.format.block) + packed.offset
    return packed.scales


def _whole(rows: paddle.Tensor, scales: paddle.Tensor, largest: int) -> paddle.Tensor:
    """Return [n]: whole numbers as int8, 4-bit ones as places in their table."""
    codes = (rows / no_zeros(scales)).round().clip(-largest, largest).flatten()
    return codes.astype("int8") if largest == 127 else (codes + largest).astype("uint8")


def _coded_blocks(rows: paddle.Tensor, format: Format) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Return uint8 [n], places in the format's table, and float32, the scale of each block."""
    values, scales = blocks(rows, format.block)
    codes = nearest(values / no_zeros(scales).unsqueeze(1), TABLES[format.algo])
    return codes.flatten()[: rows.size].astype("uint8"), scales


def _numbers(packed: Packed, start: int, stop: int) -> paddle.Tensor:
    """Return float32 [n]: the numbers of the codes of rows start to stop, without their scales."""
    first, last = start * packed.shape[1], stop * packed.shape[1]
    if packed.format.bits == 4:
        codes = packed.codes[first // 2 : (last + 1) // 2]  # pairs, whose numbers one gather finds
        pairs = on_device(pair_table(TABLES[packed.format.algo])).reshape([256, 2])
        numbers = paddle.gather(pairs, codes.astype("int32")).flatten()
        return numbers if (last - first) % 2 == 0 else numbers[: last - first]
    codes = packed.codes[:, start:stop].T if packed.by_kernel else packed.codes[first:last]
    return codes.astype("float32").flatten()


def _rows(packed: Packed, scales: paddle.Tensor, start: int, stop: int) -> paddle.Tensor:
    """Return the rows from start to stop in the weight's dtype; codes times scales in float32."""
    format, shape = packed.format, [stop - start, packed.shape[1]]
    numbers = _numbers(packed, start, stop)
    if format.algo in LARGEST:
        return numbers.reshape(shape).multiply_(scales).astype(packed.dtype)
    first, last = start * shape[1] // format.block, -(-stop * shape[1] // format.block)
    return scale_blocks_(numbers, scales[first:last], format.block).reshape(shape).astype(packed.dtype)

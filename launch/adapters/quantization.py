"""Weights in 8 and 4 bits: to codes and scales, and back, with Paddle's plain operators on any device.

    packed = quantize(weight, Format("nf4", double_quant=True))
    weight = dequantize(packed)

weight_only_int8, weight_only_int4  whole numbers from -127 to 127 (-7 to 7) times one scale for each output
nf4, fp4     one of 16 numbers between -1 and 1 times one scale for each block of --weight_blocksize weights in a row:
             nf4 has a sixteenth of a normal distribution around each (QLoRA, arXiv 2305.14314, appendix E), fp4 is a
             sign, two bits of exponent and one of mantissa (bitsandbytes, FP4). With --weight_double_quant the scales,
             less their mean, are themselves codes of 8 bits times a scale for each --weight_double_quant_block_size
             of them, on the dynamic scale of arXiv 2110.02861.
"""

from dataclasses import dataclass

import paddle

NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
FP4_POSITIVE = (0.0, 0.0625 / 12, 2 / 12, 3 / 12, 4 / 12, 6 / 12, 8 / 12, 1.0)
TABLES = {"nf4": NF4, "fp4": tuple(sorted({-value for value in FP4_POSITIVE} | set(FP4_POSITIVE)))}
LARGEST = {"weight_only_int8": 127, "weight_only_int4": 7}


@dataclass(frozen=True)
class Format:
    """algo: of TABLES or LARGEST. block, double_quant, double_block: for nf4 and fp4, see above."""

    algo: str
    block: int = 64
    double_quant: bool = False
    double_block: int = 256

    @property
    def bits(self) -> int:
        """Of a code."""
        return 8 if self.algo == "weight_only_int8" else 4


@dataclass(frozen=True)
class Packed:
    """A quantised tensor. codes: uint8 [n], two of 4 bits in each, the first in the upper half; scales: float32, for
    each output or block, themselves packed with double_quant, less `offset` then. shape, dtype: of the weight."""

    format: Format
    codes: paddle.Tensor
    scales: "paddle.Tensor | Packed"
    offset: paddle.Tensor | None
    shape: tuple[int, ...]
    dtype: paddle.dtype

    @property
    def nbytes(self) -> int:
        scales = self.scales.nbytes if isinstance(self.scales, Packed) else 4 * int(self.scales.size)
        return int(self.codes.size) + scales + (4 if self.offset is not None else 0)


@paddle.no_grad()
def quantize(weight: paddle.Tensor, format: Format) -> Packed:
    """weight: [inputs, outputs], of any floating-point dtype."""
    shape, dtype = tuple(weight.shape), weight.dtype
    weight = weight.astype("float32")
    if format.algo in LARGEST:
        largest = LARGEST[format.algo]
        scales, offset = weight.abs().max(axis=0) / largest, None
        codes = (weight / _no_zeros(scales)).round().clip(-largest, largest) + largest
    else:
        blocks, scales = _blocks(weight, format.block)
        codes = _nearest(blocks / _no_zeros(scales).unsqueeze(1), TABLES[format.algo])
        offset = scales.mean() if format.double_quant else None
        if format.double_quant:
            scales = _quantize_scales(scales - offset, format.double_block)
    codes = codes.flatten()[: weight.size].astype("uint8")
    return Packed(format, _pack(codes) if format.bits == 4 else codes, scales, offset, shape, dtype)


@paddle.no_grad()
def dequantize(packed: Packed) -> paddle.Tensor:
    """The weight in its own shape and dtype."""
    format, size = packed.format, packed.shape[0] * packed.shape[1]
    codes = _unpack(packed.codes, size) if format.bits == 4 else packed.codes
    if format.algo in LARGEST:
        whole = codes.astype("float32").reshape(packed.shape) - LARGEST[format.algo]
        return (whole * packed.scales).astype(packed.dtype)
    scales = packed.scales
    if isinstance(scales, Packed):
        scales = _dequantize_scales(scales) + packed.offset
    return _scaled(codes, TABLES[format.algo], scales, format.block).reshape(packed.shape).astype(packed.dtype)


# ---- scales in 8 bits


def dynamic_table() -> tuple[float, ...]:
    """256 numbers from -0.993 to 1: for each power of ten from -6 to 0 twice as many as for the one below."""
    numbers = [0.0, 1.0]
    for exponent in range(7):
        count = 2**exponent
        width = 0.9 / count
        means = [10.0 ** (exponent - 6) * (0.1 + (i + 0.5) * width) for i in range(count)]
        numbers += means + [-one for one in means]
    return tuple(sorted(numbers))


DYNAMIC = dynamic_table()


def _quantize_scales(scales: paddle.Tensor, block: int) -> Packed:
    blocks, largest = _blocks(scales, block)
    codes = _nearest(blocks / _no_zeros(largest).unsqueeze(1), DYNAMIC).flatten()[: scales.size].astype("uint8")
    return Packed(Format("dynamic", block), codes, largest, None, tuple(scales.shape), scales.dtype)


def _dequantize_scales(packed: Packed) -> paddle.Tensor:
    return _scaled(packed.codes, DYNAMIC, packed.scales, packed.format.block)


# ---- blocks and tables


def _blocks(tensor: paddle.Tensor, block: int) -> tuple[paddle.Tensor, paddle.Tensor]:
    """The tensor's elements in rows of `block`, the last one filled up with zeros; the largest magnitude of each."""
    flat = tensor.flatten()
    rows = paddle.nn.functional.pad(flat, [0, -flat.shape[0] % block]).reshape([-1, block])
    return rows, rows.abs().max(axis=1)


def _no_zeros(scales: paddle.Tensor) -> paddle.Tensor:
    """Where all weights are 0, any divisor does."""
    return paddle.where(scales == 0, paddle.ones_like(scales), scales)


def _nearest(values: paddle.Tensor, table: tuple[float, ...]) -> paddle.Tensor:
    """The place of the nearest number in an ascending table, the lower one of two that are as near."""
    numbers = paddle.to_tensor(table, dtype="float32")
    return paddle.bucketize(values, (numbers[1:] + numbers[:-1]) / 2, out_int32=True)


def _scaled(codes: paddle.Tensor, table: tuple[float, ...], scales: paddle.Tensor, block: int) -> paddle.Tensor:
    """float32 [n]: the numbers that codes stand for, each times its block's scale."""
    numbers = paddle.gather(paddle.to_tensor(table, dtype="float32"), codes.astype("int32"))
    rows = paddle.nn.functional.pad(numbers, [0, -numbers.shape[0] % block]).reshape([-1, block])
    return (rows * scales.unsqueeze(1)).flatten()[: codes.shape[0]]


def _pack(codes: paddle.Tensor) -> paddle.Tensor:
    """uint8 [n] below 16 -> uint8 [(n + 1) / 2]"""
    pairs = paddle.nn.functional.pad(codes.astype("int32"), [0, codes.shape[0] % 2]).reshape([-1, 2])
    return (pairs[:, 0] * 16 + pairs[:, 1]).astype("uint8")


def _unpack(bytes: paddle.Tensor, count: int) -> paddle.Tensor:
    """int32 [count], the inverse of _pack."""
    pairs = bytes.astype("int32")
    return paddle.stack([pairs // 16, pairs % 16], axis=1).flatten()[:count]

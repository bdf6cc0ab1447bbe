"""Codes of 4 and 8 bits: the numbers that they stand for, the nearest of these, and two codes in a byte."""

from functools import lru_cache

import paddle

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
    """256 numbers from -0.993 to 1: for each power of ten from -6 to 0 twice as many as for the one below."""
    numbers = [0.0, 1.0]
    for exponent in range(7):
        count = 2**exponent
        width = 0.9 / count
        means = [10.0 ** (exponent - 6) * (0.1 + (i + 0.5) * width) for i in range(count)]
        numbers += means + [-one for one in means]
    return tuple(sorted(numbers))


DYNAMIC = dynamic_table()


def blocks(tensor: paddle.Tensor, block: int) -> tuple[paddle.Tensor, paddle.Tensor]:
    """The tensor's elements in rows of `block`, the last one filled up with zeros; the largest magnitude of each."""
    flat = tensor.flatten()
    rows = paddle.nn.functional.pad(flat, [0, -flat.shape[0] % block]).reshape([-1, block])
    return rows, rows.abs().max(axis=1)


def no_zeros(scales: paddle.Tensor) -> paddle.Tensor:
    """Where all that a scale is of are 0, any divisor does."""
    return paddle.where(scales == 0, paddle.ones_like(scales), scales)


def nearest(values: paddle.Tensor, table: tuple[float, ...]) -> paddle.Tensor:
    """The place of the nearest number in an ascending table, the lower one of two that are as near."""
    numbers = on_device(table)
    return paddle.bucketize(values, (numbers[1:] + numbers[:-1]) / 2, out_int32=True)


def on_device(table: tuple[float, ...]) -> paddle.Tensor:
    """float32, copied from the host once for each device."""
    return _on_device(table, str(paddle.framework._current_expected_place()))


@lru_cache
def _on_device(table: tuple[float, ...], place: str) -> paddle.Tensor:
    return paddle.to_tensor(table, dtype="float32")


@lru_cache
def pair_table(table: tuple[float, ...]) -> tuple[float, ...]:
    """For each of the 256 bytes the two numbers of its codes, one after the other; codes without a number are 0."""
    numbers = table + (0.0,) * (16 - len(table))
    return tuple(number for upper in numbers for lower in numbers for number in (upper, lower))


def numbers_of_bytes(codes: paddle.Tensor, table: tuple[float, ...]) -> paddle.Tensor:
    """uint8 [n] -> float32 [n]: what codes of 8 bits stand for."""
    return paddle.gather(on_device(table), codes.astype("int32"))


def numbers_of_pairs(codes: paddle.Tensor, table: tuple[float, ...], count: int) -> paddle.Tensor:
    """uint8 [(count + 1) / 2] -> float32 [count]: what pairs of codes of 4 bits stand for, both with one gather."""
    pairs = on_device(pair_table(table)).reshape([256, 2])
    numbers = paddle.gather(pairs, codes.astype("int32")).flatten()
    return numbers if count % 2 == 0 else numbers[:count]


def scale_blocks_(numbers: paddle.Tensor, scales: paddle.Tensor, block: int) -> paddle.Tensor:
    """float32 [n]: each number times its block's scale, in place where blocks are whole."""
    count = numbers.shape[0]
    if count % block:
        numbers = paddle.nn.functional.pad(numbers, [0, -count % block])
    rows = numbers.reshape([-1, block]).multiply_(scales.unsqueeze(1)).flatten()
    return rows[:count] if count % block else rows


def pack(codes: paddle.Tensor) -> paddle.Tensor:
    """uint8 [n] below 16 -> uint8 [(n + 1) / 2]"""
    pairs = paddle.nn.functional.pad(codes.astype("int32"), [0, codes.shape[0] % 2]).reshape([-1, 2])
    return (pairs[:, 0] * 16 + pairs[:, 1]).astype("uint8")

"""A tensor in a file, opened only when it is used, and the conversion of its dtype. No Paddle."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a weights file.

    Attributes:
        dtype: "float32", "bfloat16", "int64", ... as Paddle and NumPy name them.
        offset: Of its first byte in the file; the elements are stored in row-major order, little endian.
    """

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return bytes_of(self.dtype, self.shape)

    def open(self) -> np.ndarray:
        """Return a read-only view of the tensor in its file: nothing is read before an element is used.

        bfloat16, which NumPy lacks, is returned as uint16: its bits. Drop the view to release its pages.
        """
        dtype = numpy_dtype(self.dtype)
        if not self.nbytes:
            return np.empty(self.shape, dtype)
        return np.memmap(self.path, dtype, mode="r", offset=self.offset, shape=self.shape).view(np.ndarray)

    def first(self, count: int) -> np.ndarray:
        """Return the first elements in row-major order, as a view like `open`'s."""
        return self.open().reshape(-1)[:count]


FLOATS_OF_8_BITS = ("float8_e4m3fn", "float8_e5m2", "float8_e8m0")  # read as codes


def numpy_dtype(name: str) -> np.dtype:
    """Return NumPy's dtype for the bits of `name`, little endian."""
    bits = {"bfloat16": "uint16"} | dict.fromkeys(FLOATS_OF_8_BITS, "uint8")
    return np.dtype(bits.get(name, name)).newbyteorder("<")


def bytes_of(dtype: str, shape: Sequence[int]) -> int:
    """Return the bytes of a tensor's elements in a file."""
    return numpy_dtype(dtype).itemsize * math.prod(shape)


# ---- from one dtype to another, in pieces: no second whole copy is made on the way


FLOATS = ("float64", "float32", "bfloat16", "float16")
PIECE_ELEMENTS = 1 << 20
EXPONENTS = {"bfloat16": np.uint16(0x7F80), "float16": np.uint16(0x7C00)}  # NaN and infinity have all of these bits


def convert(array: np.ndarray, found: str, requested: str) -> np.ndarray:
    """Return `array` of dtype `found` in dtype `requested`, rounded to nearest, ties to even.

    Unchanged where they are equal.

    found, requested: of FLOATS; bfloat16 is stored as uint16, its bits. Memory: the result and about 16 MB.

    Raises:
        OverflowError: If a finite value has become infinite: float16 ends at 65,504.
    """
    if found == requested:
        return array
    rows = np.atleast_1d(array)
    result = np.empty(rows.shape, numpy_dtype(requested))
    step = max(1, PIECE_ELEMENTS // max(1, result[:1].size))
    for start in range(0, len(rows), step):
        piece, converted = rows[start : start + step], result[start : start + step]
        if found == "bfloat16":
            piece = (piece.astype(np.uint32) << 16).view(np.float32)
        if requested == "bfloat16":  # the upper half of each float32, rounded
            floats = piece.astype(np.float32)
            bits = floats.view(np.uint32)
            rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            converted[:] = np.where(np.isnan(floats), 0x7FC0, rounded)  # NaN's could carry into the sign
            continue
        with np.errstate(over="ignore"):  # reported below
            converted[:] = piece.astype(requested)
        if requested == "float16" and np.any(np.isinf(converted) & np.isfinite(piece)):
            raise OverflowError(float(np.abs(piece).max()))
    return result.reshape(array.shape)


def not_finite(array: np.ndarray, dtype: str) -> int:
    """Return how many values are NaN or infinite; dtype: one of FLOATS. Memory: some megabytes."""
    rows = np.atleast_1d(array)
    step = max(1, PIECE_ELEMENTS // max(1, rows[:1].size))
    pieces = [rows[start : start + step] for start in range(0, len(rows), step)]
    if dtype in EXPONENTS:  # by the bits: NumPy looks at float16 ten times slower
        bits = EXPONENTS[dtype]
        return sum(np.count_nonzero((piece.view(np.uint16) & bits) == bits) for piece in pieces)
    return sum(piece.size - np.count_nonzero(np.isfinite(piece)) for piece in pieces)

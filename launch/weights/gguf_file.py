"""The header of a GGUF file, checked before anything is allocated, and its tensors, unpacked when they are opened.

    file = read_gguf(Path("model.gguf"))
    file.metadata["general.architecture"], file.tensors["token_embd.weight"].open()

The format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): magic, version, counts; the metadata, each a
key, a type and a value; of each tensor its name, sizes (the fastest first), type and offset; then the aligned data. The
reader of the package gguf trusts counts and offsets, so the header is read here; its tables and its unpacking are used.
"""

import mmap
import struct
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path

import numpy as np

from data_tools.formats.json_files import shown
from launch.checkpoint.stored_tensor import StoredTensor
from launch.errors import UserError

AGAIN = "Copy or download the file again."
MAGIC, VERSIONS, BIG_ENDIAN = b"GGUF", (2, 3), 3 << 24
STRING, ARRAY, BOOL = 8, 9, 7
SCALARS = {0: "u1", 1: "i1", 2: "u2", 3: "i2", 4: "u4", 5: "i4", 6: "f4", 7: "u1", 10: "u8", 11: "i8", 12: "f8"}
# Types that are stored as they are, and those that are unpacked to float32.
PLAIN = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
PACKED = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
SMALLEST_ENTRY = 13  # bytes of a key, a type and a value
LARGEST_ALIGNMENT = 1 << 20
PIECE_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class GGUFTensor(StoredTensor):
    """A tensor of a GGUF file. kind: its name in ggml; dtype: what `open` returns.

    heads: rows of queries or keys stand in llama.cpp's order (row_order), and `open` restores the usual one.
    """

    kind: str = "F32"
    heads: int = 0

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of a row in the file."""
        block, size = block_of(self.kind)
        return self.shape[-1] // block * size

    def open(self) -> np.ndarray:
        """Return the values: a view of the file, or an array where they are packed or in another order."""
        rows = self.packed_rows()
        if self.kind in PLAIN:
            return rows.view("<u2" if self.kind == "BF16" else np.dtype(self.dtype)).reshape(self.shape)
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize

        values = np.empty((len(rows), self.shape[-1]), np.float32)
        step = max(1, PIECE_ELEMENTS // self.shape[-1])
        for start in range(0, len(rows), step):
            values[start : start + step] = dequantize(rows[start : start + step], GGMLQuantizationType[self.kind])
        return values.reshape(self.shape)

    def packed_rows(self) -> np.ndarray:
        """Return the rows as bytes, in the usual order."""
        count = prod(self.shape[:-1])
        place = {"offset": self.offset, "shape": (count, self.row_bytes)}
        rows = np.memmap(self.path, np.uint8, mode="r", **place).view(np.ndarray)
        return rows[row_order(count, self.heads, restore=True)] if self.heads else rows

    def expert(self, number: int) -> "GGUFTensor":
        """Return one expert's matrix of a tensor that holds those of all."""
        _, rows, _ = self.shape
        return replace(self, shape=self.shape[1:], offset=self.offset + number * rows * self.row_bytes)


@dataclass(frozen=True)
class GGUFFile:
    """A file's metadata and tensors by name."""

    path: Path
    metadata: dict
    tensors: dict[str, GGUFTensor]


def row_order(rows: int, heads: int, restore: bool) -> np.ndarray:
    """Return which row comes at each place where rows of queries or keys change between the two orders.

    The usual rotary embedding turns element i of a head with i + size / 2, llama.cpp's with the one behind it.
    """
    inner = (-1, 2) if restore else (2, -1)
    return np.arange(rows).reshape(heads, *inner).swapaxes(1, 2).reshape(-1)


def block_of(kind: str) -> tuple[int, int]:
    """Return (elements, bytes) of a block of a ggml type."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    return GGML_QUANT_SIZES[GGMLQuantizationType[kind]]


class _Damaged(Exception):
    """What is wrong with a header."""


class _Cursor:
    """A place in the bytes of a file, which no read leaves."""

    def __init__(self, data: mmap.mmap):
        self.data, self.place = data, 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.place:
            raise _Damaged(
                f"cut off: byte {self.place:,} is to be followed by {size:,}, the file has {len(self.data):,}"
            )
        self.place += size
        return self.data[self.place - size : self.place]

    def number(self, code: str) -> int:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(code)))[0]

    def text(self) -> str:
        try:
            return self.take(self.number("Q")).decode()
        except UnicodeDecodeError:
            raise _Damaged(f"no text before byte {self.place:,}") from None

    def count(self, what: str, smallest: int) -> int:
        """Return a count. Raises _Damaged where the file is too short for so many entries of the smallest size."""
        number = self.number("Q")
        if number * smallest > len(self.data) - self.place:
            raise _Damaged(f"{number:,} {what}, for which the file is too short: cut off, or no such count")
        return number

    def value(self, kind: int) -> object:
        if kind == STRING:
            return self.text()
        if kind in SCALARS:
            found = np.frombuffer(self.take(np.dtype(SCALARS[kind]).itemsize), f"<{SCALARS[kind]}")[0].item()
            return bool(found) if kind == BOOL else found
        inner = self.number("I") if kind == ARRAY else kind
        if inner == STRING:
            return [self.text() for _ in range(self.count("texts", 8))]
        if inner not in SCALARS:
            raise _Damaged(f"a value of type {inner}, which GGUF does not have here")
        size = np.dtype(SCALARS[inner]).itemsize
        return np.frombuffer(self.take(self.count("numbers", size) * size), f"<{SCALARS[inner]}").tolist()


def read_gguf(path: Path) -> GGUFFile:
    """Return the metadata and the tensors of a file, whose places are checked against its size.

    Raises UserError where it is none, is cut off, does not make sense, or has tensors of a type that is not read here.
    """
    if not path.stat().st_size:
        raise UserError(f"{path}: an empty file. {AGAIN}")
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _read(path, _Cursor(data))
        except _Damaged as error:
            raise UserError(f"{path}: {error}. {AGAIN}") from None


def _read(path: Path, cursor: _Cursor) -> GGUFFile:
    magic = cursor.take(4)
    if magic != MAGIC:
        raise _Damaged(f"no GGUF file: begins with {magic!r}, not {MAGIC!r}")
    version = cursor.number("I")
    if version == BIG_ENDIAN:
        raise UserError(f"{path}: its numbers are big-endian; GGUF files for x86 and ARM are little-endian. Take one.")
    if version not in VERSIONS:
        raise UserError(f"{path}: GGUF version: found {version}, allowed: 2, 3. Take a newer file of the model.")
    tensors, entries = cursor.count("tensors", 8 + 4 + 8 + 4 + 8), cursor.count("metadata entries", SMALLEST_ENTRY)
    metadata: dict = {}
    for _ in range(entries):
        key = cursor.text()
        if key in metadata:
            raise _Damaged(f"the metadata have {shown(key)!r} twice")
        metadata[key] = cursor.value(cursor.number("I"))
    stated = [_tensor_entry(cursor) for _ in range(tensors)]
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= LARGEST_ALIGNMENT or alignment % 8:
        raise _Damaged(f"general.alignment is {shown(alignment)}, not a multiple of 8")
    start = cursor.place + -cursor.place % alignment
    return GGUFFile(path, metadata, _placed(path, stated, start, alignment, len(cursor.data)))


def _tensor_entry(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """Return (name, shape, number of its type, offset)."""
    name, dimensions = cursor.text(), cursor.number("I")
    if not 1 <= dimensions <= 4:
        raise _Damaged(f"{shown(name)!r} has {dimensions} dimensions, not 1 to 4")
    shape = tuple(cursor.number("Q") for _ in range(dimensions))[::-1]
    return name, shape, cursor.number("I"), cursor.number("Q")


def _placed(path: Path, stated: list, start: int, alignment: int, size: int) -> dict[str, GGUFTensor]:
    """Return the tensors by name. Raises _Damaged or UserError where one is not whole in the file, or not readable."""
    from gguf.constants import GGMLQuantizationType

    found, end = {}, start
    for name, shape, number, offset in sorted(stated, key=lambda one: one[-1]):
        try:
            kind = GGMLQuantizationType(number).name
        except ValueError:
            raise _Damaged(f"{shown(name)!r} is of type {number}, which ggml does not have") from None
        if kind not in PLAIN and kind not in PACKED:
            allowed = ", ".join((*PLAIN, *PACKED))
            raise UserError(f"{path}: {name}: type: found {kind}, allowed: {allowed}. Take the model in one of these.")
        tensor = GGUFTensor(path, PLAIN.get(kind, "float32"), shape, start + offset, kind)
        if name in found or 0 in shape or shape[-1] % block_of(kind)[0]:
            raise _Damaged(
                f"the entry of {shown(name)!r} makes no sense: {list(shape)} of {kind}, or it is there twice"
            )
        if offset % alignment or tensor.offset < end:
            raise _Damaged(f"{shown(name)!r} begins at {offset:,}, within another tensor or between two places")
        end = tensor.offset + prod(shape[:-1]) * tensor.row_bytes
        if end > size:
            raise _Damaged(f"cut off: {shown(name)!r} ends at byte {end:,}, the file has {size:,}")
        found[name] = tensor
    if size - end >= alignment:
        raise _Damaged(f"the last tensor ends at byte {end:,}, the file has {size:,}: something was put between")
    return found

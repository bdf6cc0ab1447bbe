"""Safetensors files: headers read without reading a tensor, and files written tensor by tensor. No Paddle.

    tensors, metadata = read_header("model.safetensors")
    tensors["lm_head.weight"].open()        # a memory-mapped array

The format (https://huggingface.co/docs/safetensors): uint64 size of the header, little endian; the header, JSON
{name: {"dtype", "shape", "data_offsets": [first, last] behind the header}, "__metadata__": {...}}; the tensors.
"""

import json
import math
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_tools.formats.json_files import shown
from launch.checkpoint.stored_tensor import FLOATS, StoredTensor, bytes_of, not_finite
from launch.errors import UserError

METADATA = "__metadata__"
AGAIN = "Copy or download the file again."
LARGEST_HEADER = 100_000_000  # bytes; the safetensors library refuses larger ones, too
DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0",
}
DTYPE_CODES = {name: code for code, name in DTYPES.items()}

ALIGNMENT = 8  # of the tensors in the file, as the safetensors library has it


def header_bytes(metadata: dict[str, str], tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> bytes:
    """Return the start of a file, before its tensors.

    tensors: (name, dtype, shape) of each, in the order of the file.
    """
    header: dict[str, dict] = {METADATA: metadata}
    offset = 0
    for name, dtype, shape in tensors:
        end = offset + bytes_of(dtype, shape)
        header[name] = {"dtype": DTYPE_CODES[dtype], "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return struct.pack("<Q", len(text)) + text


def read_header(path: str | Path) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """Return (tensors by name, metadata) of a safetensors file.

    Raises:
        UserError: If the file is another kind, is truncated, or its header does not agree with its size.
    """
    path = Path(path)
    header, data_start = _read_json(path)
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise UserError(f"{path}: the header's {METADATA} makes no sense. {AGAIN}")
    tensors, places = {}, [(data_start, data_start)]
    for name, entry in header.items():
        try:
            first, last = entry["data_offsets"]
            shape = tuple(entry["shape"])
            agrees = len(shape) < 64 and all(
                type(number) is int and 0 <= number < 2**63 for number in (first, last, *shape)
            )
            tensor = StoredTensor(path, DTYPES[entry["dtype"]], shape, data_start + first if agrees else 0)
            agrees = agrees and last == first + tensor.nbytes
        except (KeyError, TypeError, ValueError):
            agrees = False
        if not agrees:
            raise UserError(f"{path}: the header's entry for {name!r} makes no sense: {shown(entry, 200)}. {AGAIN}")
        tensors[name] = tensor
        places.append((tensor.offset, tensor.offset + tensor.nbytes))
    places.sort()
    found, expected = path.stat().st_size, places[-1][1]
    if found != expected:
        raise UserError(f"{path}: {found:,} bytes, its header says {expected:,}. {AGAIN}")
    if any(end != start for (_, end), (start, _) in zip(places, places[1:], strict=False)):
        raise UserError(f"{path}: the header's tensors overlap, or leave bytes between them. {AGAIN}")
    return tensors, metadata


def _read_json(path: Path) -> tuple[dict, int]:
    """Return (the header, the offset of the tensors)."""
    with open(path, "rb") as file:
        prefix = file.read(8)
        size = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        text = file.read(size) if size <= LARGEST_HEADER else b""
    try:
        header = json.loads(text, object_pairs_hook=_once) if len(text) == size else None
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise UserError(f"{path}: not a safetensors file, or cut off in its header. {AGAIN}")
    return header, 8 + size


def _once(pairs: list[tuple[str, object]]) -> dict:
    """Return the object of a header. Raises ValueError where a name is there twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name is there twice")
    return values


# ---- writing: one file, or several with an index, as PaddleNLP reads them (names: paddlenlp/utils/env.py)


INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
# "format" in the metadata. Matrices are [inputs, outputs], as in Paddle, or transposed, as in torch.
NUMPY, TORCH = "np", "pt"


@dataclass(frozen=True)
class NewTensor:
    """A tensor to be written.

    Attributes:
        pieces: Its rows one after another, in row-major order, bfloat16 as uint16.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: Callable[[], Iterator[np.ndarray]]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return bytes_of(self.dtype, self.shape)


def write_safetensors(
    directory: Path, tensors: list[NewTensor], shard_bytes: int, advance: Callable[[int], None], layout: str = NUMPY
) -> None:
    """Write all tensors, in files of at most `shard_bytes` (a larger tensor has a file to itself).

    advance: called with the number of bytes just written. layout: NUMPY or TORCH.

    Raises:
        UserError: At the first tensor with values that are NaN or infinite: nothing can be computed with them.
    """
    shards = _shards(tensors, shard_bytes)
    if len(shards) == 1:
        _write(directory / SINGLE, shards[0], advance, layout)
        return
    files = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    for file, shard in zip(files, shards, strict=True):
        _write(directory / file, shard, advance, layout)
    places = {tensor.name: file for file, shard in zip(files, shards, strict=True) for tensor in shard}
    index = {"metadata": {"total_size": sum(tensor.nbytes for tensor in tensors)}, "weight_map": places}
    (directory / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _shards(tensors: list[NewTensor], shard_bytes: int) -> list[list[NewTensor]]:
    shards, size = [[]], 0
    for tensor in tensors:
        if shards[-1] and size + tensor.nbytes > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append(tensor)
        size += tensor.nbytes
    return shards


def _write(path: Path, tensors: list[NewTensor], advance: Callable[[int], None], layout: str) -> None:
    with open(path, "wb") as file:
        file.write(header_bytes({"format": layout}, [(tensor.name, tensor.dtype, tensor.shape) for tensor in tensors]))
        for tensor in tensors:
            broken = 0
            for piece in tensor.pieces():
                broken += not_finite(piece, tensor.dtype) if tensor.dtype in FLOATS else 0
                file.write(np.ascontiguousarray(piece).data)
                advance(piece.nbytes)
            if broken:
                raise UserError(
                    f"{tensor.name}: {broken:,} of {math.prod(tensor.shape):,} values are NaN or infinite. The "
                    "training that wrote them had diverged, or the file is damaged: take an earlier checkpoint, or "
                    "copy it again."
                )

"""Safetensors files written tensor by tensor: one file, or several with an index, as PaddleNLP reads them.

The format: launch/checkpoint/safetensors_reader.py. Names of files and index: paddlenlp/utils/env.py.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from launch.checkpoint.safetensors_reader import header_bytes
from launch.checkpoint.stored_tensor import numpy_dtype

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
# What files say of their matrices: [inputs, outputs], as Paddle has them, or transposed, as torch does.
NUMPY, TORCH = "np", "pt"


@dataclass(frozen=True)
class NewTensor:
    """A tensor to be written. pieces: its rows one after another, in row-major order, bfloat16 as uint16."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: Callable[[], Iterator[np.ndarray]]

    @property
    def nbytes(self) -> int:
        return numpy_dtype(self.dtype).itemsize * int(np.prod(self.shape, dtype=np.int64))


def write_safetensors(
    directory: Path, tensors: list[NewTensor], shard_bytes: int, advance: Callable[[int], None], layout: str = NUMPY
) -> None:
    """Write all tensors, in files of at most `shard_bytes` (a larger tensor has a file to itself).

    advance: called with the number of bytes written, as they are. layout: NUMPY or TORCH, what the file says it is in.
    """
    shards = _shards(tensors, shard_bytes)
    if len(shards) == 1:
        _write(directory / SINGLE, shards[0], advance, layout)
        return
    files = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    for file, shard in zip(files, shards, strict=True):
        _write(directory / file, shard, advance, layout)
    places = {one.name: file for file, shard in zip(files, shards, strict=True) for one in shard}
    index = {"metadata": {"total_size": sum(one.nbytes for one in tensors)}, "weight_map": places}
    (directory / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _shards(tensors: list[NewTensor], shard_bytes: int) -> list[list[NewTensor]]:
    shards, size = [[]], 0
    for one in tensors:
        if shards[-1] and size + one.nbytes > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append(one)
        size += one.nbytes
    return shards


def _write(path: Path, tensors: list[NewTensor], advance: Callable[[int], None], layout: str) -> None:
    with open(path, "wb") as file:
        file.write(header_bytes({"format": layout}, [(one.name, one.dtype, one.shape) for one in tensors]))
        for one in tensors:
            for piece in one.pieces():
                file.write(np.ascontiguousarray(piece).data)
                advance(piece.nbytes)

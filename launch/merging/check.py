"""Does a directory hold a base with an adapter merged? Tensor by tensor, piece by piece, without Paddle."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from data_tools.progress import progress
from launch.adapters.lora_files import Lora
from launch.checkpoint.dtypes import FLOATS, convert
from launch.checkpoint.fit import Misfits, difference
from launch.checkpoint.stored_tensor import StoredTensor
from launch.checkpoint.weight_files import find_weights
from launch.errors import UserError
from launch.merging.merge import merged_tensors, pieces_of
from launch.weights.safetensors_writer import NewTensor

# How far a value may be off, as a part of the largest one nearby: some roundings of the dtype. Others: not at all.
ROUNDING = {"float64": 1e-5, "float32": 1e-5, "bfloat16": 2.0**-7, "float16": 2.0**-10}


def check_weights(base: Path, lora: Lora, merged: Path) -> float:
    """The largest difference between the weights of `merged` and base + adapter, as a part of the largest value nearby.

    Reads both once. Raises UserError with the names of all tensors that are missing, or that are not the merged ones.
    """
    expected, found = merged_tensors(base, lora), find_weights(merged)
    names = {one.name for one in expected}
    misfits = Misfits(missing=names - found.keys(), extra=found.keys() - names)
    largest = 0.0
    with progress("comparing the weights", sum(one.nbytes for one in expected)) as advance:
        for one in expected:
            if one.name in misfits.missing:
                continue
            if found[one.name].shape != one.shape:
                shapes = (str(list(found[one.name].shape)), str(list(one.shape)))
                misfits.different.add(difference(one.name, *shapes))
                continue
            off = _difference(one, found[one.name], advance)
            if not off <= ROUNDING.get(one.dtype, 0.0):  # NaN is not
                misfits.different.add(f"{one.name} (off by {off:.2g} of its largest value)")
            largest = max(largest, off)
    if misfits:
        raise UserError(f"{merged} is not {base} with {lora.directory} merged: {misfits}")
    return largest


def _difference(expected: NewTensor, found: StoredTensor, advance: Callable[[int], None]) -> float:
    largest = 0.0
    for piece, (start, stop) in zip(expected.pieces(), pieces_of(found), strict=True):
        ours, theirs = _float(piece, expected.dtype), _float(found.open()[start:stop], found.dtype)
        off = float(np.abs(ours - theirs).max(initial=0)) / max(float(np.abs(ours).max(initial=0)), 1e-30)
        largest = off if np.isnan(off) else max(largest, off)
        advance(piece.nbytes)
    return largest


def _float(array: np.ndarray, dtype: str) -> np.ndarray:
    return convert(array, dtype, "float32") if dtype in FLOATS else array.astype(np.float64)

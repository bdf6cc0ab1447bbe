"""A tensor in a file, known by its place, opened only when it is needed."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a weights file.

    dtype:  "float32", "bfloat16", "int64", ... as Paddle and NumPy name them
    offset: of its first byte in the file; the elements lie there in row-major order, little endian
    """

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return numpy_dtype(self.dtype).itemsize * math.prod(self.shape)

    def open(self) -> np.ndarray:
        """A read-only view of the tensor in its file: nothing is read before an element is asked for.

        bfloat16, which NumPy does not have, comes as uint16: its bits. Drop the view to give up its pages.
        """
        dtype = numpy_dtype(self.dtype)
        if not self.nbytes:
            return np.empty(self.shape, dtype)
        return np.memmap(self.path, dtype, mode="r", offset=self.offset, shape=self.shape).view(np.ndarray)

    def first(self, count: int) -> np.ndarray:
        """The first elements in row-major order, as a view like `open`'s."""
        return self.open().reshape(-1)[:count]


def numpy_dtype(name: str) -> np.dtype:
    """The dtype in which NumPy holds the bits of `name`, little endian."""
    return np.dtype("uint16" if name == "bfloat16" else name).newbyteorder("<")

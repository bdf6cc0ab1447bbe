"""The CPU kernels of custom_ops/fused_rms_norm without Paddle: compiled by gcc, called on NumPy arrays."""

import ctypes
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).resolve().parents[2] / "custom_ops" / "fused_rms_norm"
SOURCES = SOURCE / "csrc"
INSTRUCTION_SETS = ("portable", "avx2", "avx512")
# Name -> number in rms_norm_c.cc, dtype in which NumPy holds it (bfloat16: its bits), distance of 1 to the next number.
DTYPES = {
    "float32": (0, np.float32, 2.0**-23),
    "bfloat16": (1, np.uint16, 2.0**-7),
    "float16": (2, np.float16, 2.0**-10),
}
# dtypes of x and weight
PAIRS = [(name, name) for name in DTYPES] + [("bfloat16", "float32"), ("float16", "float32")]


def compile_kernels(directory: Path) -> "Kernels":
    """Takes about three seconds; every warning of gcc's is shown."""
    library = directory / "librms_norm.so"
    flags = ["-O3", "-std=c++17", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, str(SOURCES / "rms_norm_c.cc"), "-o", str(library)], check=True)
    return Kernels(ctypes.CDLL(str(library)))


def install_into(folder: Path) -> None:
    """Build fused_ln into a folder, for PYTHONPATH. Half a minute where build/ has no objects of before."""
    command = [sys.executable, "-W", "ignore", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-build-isolation", "--no-deps", "--target", str(folder), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@dataclass(frozen=True)
class Kernels:
    library: ctypes.CDLL

    @property
    def instruction_sets(self) -> tuple[str, ...]:
        """Those that this processor has."""
        return INSTRUCTION_SETS[: self.library.rms_norm_best_isa() + 1]

    def set_threads(self, threads: int) -> None:
        self.library.rms_norm_set_threads(threads)

    def forward(self, x, weight, dtypes=("float32", "float32"), epsilon=1e-6, instruction_set=None):
        """y like x in the weight's dtype, and 1 / rms of every row in float32; arrays as `encode` gives them."""
        hidden = x.shape[-1]
        rows = int(np.prod(x.shape[:-1]))
        y = np.empty(x.shape, DTYPES[dtypes[1]][1])
        inverse_rms = np.empty(x.shape[:-1], np.float32)
        self.library.rms_norm_forward(
            *map(_pointer, (x, weight, y, inverse_rms)), ctypes.c_int64(rows), ctypes.c_int64(hidden),
            ctypes.c_double(epsilon), DTYPES[dtypes[0]][0], DTYPES[dtypes[1]][0], self._number(instruction_set),
        )  # fmt: skip
        return y, inverse_rms

    def backward(self, y_grad, x, weight, inverse_rms, dtypes=("float32", "float32"), instruction_set=None):
        """Gradients of x and weight."""
        hidden = x.shape[-1]
        rows = int(np.prod(x.shape[:-1]))
        x_grad, weight_grad = np.empty_like(x), np.empty_like(weight)
        self.library.rms_norm_backward(
            *map(_pointer, (y_grad, x, weight, inverse_rms, x_grad, weight_grad)), ctypes.c_int64(rows),
            ctypes.c_int64(hidden), DTYPES[dtypes[0]][0], DTYPES[dtypes[1]][0], self._number(instruction_set),
        )  # fmt: skip
        return x_grad, weight_grad

    def _number(self, instruction_set: str | None) -> int:
        return INSTRUCTION_SETS.index(instruction_set) if instruction_set else self.library.rms_norm_best_isa()


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


def encode(values: np.ndarray, dtype: str) -> np.ndarray:
    """Float numbers in a dtype, rounded to the nearest, ties to even; bfloat16 as its bits."""
    if dtype != "bfloat16":
        return values.astype(DTYPES[dtype][1])
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def decode(array: np.ndarray, dtype: str) -> np.ndarray:
    """What `encode` gave, in float64."""
    if dtype == "bfloat16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


def reference_forward(x, weight, epsilon=1e-6):
    """In float64: y and 1 / rms."""
    inverse_rms = 1 / np.sqrt(np.square(x).mean(-1) + epsilon)
    return x * inverse_rms[..., None] * weight, inverse_rms


def reference_backward(y_grad, x, weight, epsilon=1e-6):
    """In float64: gradients of x and weight."""
    inverse_rms = (1 / np.sqrt(np.square(x).mean(-1) + epsilon))[..., None]
    normed, weighted = x * inverse_rms, y_grad * weight
    x_grad = inverse_rms * (weighted - normed * (weighted * normed).mean(-1, keepdims=True))
    return x_grad, (y_grad * normed).reshape(-1, x.shape[-1]).sum(0)

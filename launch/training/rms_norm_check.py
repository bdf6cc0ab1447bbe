"""Paddle's own RMSNorm operator for cards, and a trial of any fused RMSNorm before a run uses it."""

import sys
from collections.abc import Callable
from types import ModuleType

import numpy as np
import paddle

# ---- is a fused RMSNorm right on this device? Tried at start on a small input, forward and backward
#
# A library that was built for another Paddle, processor or card may fail to load, fail when called, or be wrong. Tried
# with the run's dtypes and length of rows, which choose the kernel.


SHAPE, EPSILON = (3, 107), 1e-6  # of the batch: as many rows as a training step has, and no multiple of a block's
# Of the largest number: four roundings to the dtype; paddlenlp's composed operators, which `make certify` tries, make
# two in a row (measured: 0.0074 in bfloat16). Wrong factors give 0.1 and more.
TOLERANCE = {"float32": 1e-5, "bfloat16": 2.0**-6, "float16": 2.0**-9}
# (x [..., h], weight [h], epsilon) -> y [..., h] in the weight's dtype, and more
RMSNorm = Callable[[paddle.Tensor, paddle.Tensor, float], tuple]


def of_fused_ln(x: paddle.Tensor, weight: paddle.Tensor, epsilon: float) -> tuple:
    """As paddlenlp calls it; loads it first."""
    import fused_ln

    return fused_ln.fused_rms_norm(x, weight, epsilon)


def disagreement(name: str, rms_norm: RMSNorm, hidden: int = 192, dtypes: tuple[str, str] = ("float32",) * 2) -> str:
    """What is wrong with it on this device, in words that begin with its name; "" where nothing is.

    hidden: numbers in a row. dtypes: of x, and of the weight, the result and its gradient.
    """
    numbers = np.random.default_rng(0)
    of_x, of_weight = dtypes
    given = [
        paddle.to_tensor(array.astype("float32")).astype(dtype)
        for array, dtype in (
            (numbers.normal(size=(*SHAPE, hidden)), of_x),
            (numbers.normal(1, 0.1, hidden), of_weight),
            (numbers.normal(size=(*SHAPE, hidden)), of_weight),
        )
    ]
    try:
        found = _with_gradients(rms_norm, *given)
    except Exception as error:  # loading a library may fail in any way, and Paddle raises half a dozen kinds
        return f"{name} fails here: {_summary(error)}"
    right = _by_numpy(*map(_array, given))
    results = zip(("result", "gradient", "weight's gradient"), found, right, (of_weight, of_x, of_weight), strict=True)
    for of, mine, exact, dtype in results:
        error = np.abs(mine - exact).max() / np.abs(exact).max()
        if not error <= TOLERANCE[dtype]:  # also where it is not a number
            return f"{name}'s {of} is off by {error:.2g}, allowed {TOLERANCE[dtype]:.0e}"
    return ""


def _with_gradients(rms_norm: RMSNorm, x, weight, grad) -> list[np.ndarray]:
    """y, and the gradients of x and weight, by Paddle."""
    x, weight = x.detach(), weight.detach()
    x.stop_gradient = weight.stop_gradient = False
    y = rms_norm(x, weight, EPSILON)[0]
    return [_array(tensor) for tensor in (y, *paddle.grad(y, [x, weight], grad_outputs=grad))]


def _array(tensor: paddle.Tensor) -> np.ndarray:
    return tensor.astype("float32").numpy().astype("float64")


def _by_numpy(x: np.ndarray, weight: np.ndarray, grad: np.ndarray) -> list[np.ndarray]:
    """y, and the gradients of x and weight, in float64."""
    inverse_rms = 1 / np.sqrt(np.square(x).mean(-1, keepdims=True) + EPSILON)
    normed, weighted = x * inverse_rms, grad * weight
    x_grad = inverse_rms * (weighted - normed * (weighted * normed).mean(-1, keepdims=True))
    return [normed * weight, x_grad, (grad * normed).sum((0, 1))]


def _summary(error: Exception) -> str:
    """The last lines: what Paddle puts below its own stack trace."""
    text = str(error).rpartition("Error Message Summary:")[2].strip(" -\n")
    return f"{type(error).__name__}: {' '.join(text.split())[:200]}"


# ---- Paddle's own operator, in the place of the module fused_ln where that cannot be used
#
# paddle.nn.functional.rms_norm of Paddle 3.3.1 has kernels for cards, forward and backward, and none for CPUs
# (paddle/phi/kernels/gpu/rms_norm_cuda_kernel.h). It requires x and weight in one dtype and keeps sums in float32.
# Offsets there are 32 bits: more than 2^32 elements at once would be wrong.


def fused_rms_norm(x, weight, epsilon=1e-6):
    """As fused_ln's: y [..., h] in the weight's dtype and 1 / rms in float32; x [..., h], weight [h]."""
    if x.dtype != weight.dtype:
        x = x.astype(weight.dtype)
    with paddle.amp.auto_cast(False):  # or it would choose the dtype
        return paddle.nn.functional.rms_norm(x, [x.shape[-1]], weight, epsilon)


def put_in_place() -> None:
    """Let paddlenlp's `import fused_ln` find it, in this process."""
    module = ModuleType("fused_ln", __doc__)
    module.fused_rms_norm = fused_rms_norm
    sys.modules["fused_ln"] = module

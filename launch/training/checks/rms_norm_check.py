"""Does the fused RMSNorm load here, and is it right? Tried at start on a small input, forward and backward.

A library that was built for another Paddle, processor or card may fail to load, fail when called, or be wrong.
"""

import numpy as np
import paddle

ROWS, HIDDEN, EPSILON = 5, 192, 1e-6
# Of results near 1 in float32; wrong factors give 0.1 and more.
TOLERANCE = 1e-5


def disagreement() -> str:
    """What is wrong with it on this device, in words; "" where nothing is."""
    numbers = np.random.default_rng(0)
    x, grad = numbers.normal(size=(2, ROWS, HIDDEN))
    weight = numbers.normal(1, 0.1, HIDDEN)
    try:
        found = _by_fused_ln(x, weight, grad)
    except Exception as error:  # loading a library may fail in any way, and Paddle raises half a dozen kinds
        return f"the module fused_ln fails here: {_summary(error)}"
    for name, mine, right in zip(("result", "gradient", "weight's gradient"), found, _by_numpy(x, weight, grad)):
        error = np.abs(mine - right).max() / np.abs(right).max()
        if not error <= TOLERANCE:  # also where it is not a number
            return f"fused_ln's {name} is off by {error:.2g}, allowed {TOLERANCE:.0e}"
    return ""


def _by_fused_ln(x: np.ndarray, weight: np.ndarray, grad: np.ndarray) -> list[np.ndarray]:
    import fused_ln

    tensors = [paddle.to_tensor(array.astype("float32")) for array in (x, weight, grad)]
    for tensor in tensors[:2]:
        tensor.stop_gradient = False
    y = fused_ln.fused_rms_norm(tensors[0], tensors[1], EPSILON)[0]
    return [tensor.numpy() for tensor in (y, *paddle.grad(y, tensors[:2], grad_outputs=tensors[2]))]


def _by_numpy(x: np.ndarray, weight: np.ndarray, grad: np.ndarray) -> list[np.ndarray]:
    """y, and the gradients of x and weight, in float64."""
    inverse_rms = 1 / np.sqrt(np.square(x).mean(-1, keepdims=True) + EPSILON)
    normed, weighted = x * inverse_rms, grad * weight
    x_grad = inverse_rms * (weighted - normed * (weighted * normed).mean(-1, keepdims=True))
    return [normed * weight, x_grad, (grad * normed).sum(0)]


def _summary(error: Exception) -> str:
    """The last lines: what Paddle puts below its own stack trace."""
    text = str(error).rpartition("Error Message Summary:")[2].strip(" -\n")
    return f"{type(error).__name__}: {' '.join(text.split())[:200]}"

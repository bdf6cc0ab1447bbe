"""What the rank of the tests of factored moments does; what both sides share."""

import numpy as np

SHAPES = {"matrix": (50, 130), "vector": (130,)}
STEPS, LARGE, RATE, DECAY = 20, 7, 1e-2, 0.1


def start_and_gradients(shape: tuple[int, ...]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return weights, and gradients that differ a thousandfold in size; those of one step are ten times as large."""
    random = np.random.default_rng(5)
    sizes, start = np.exp(random.normal(size=shape)), random.normal(size=shape)
    gradients = [random.normal(size=shape) * sizes * (10 if step == LARGE else 1) for step in range(STEPS)]
    return start.astype("float32"), [gradient.astype("float32") for gradient in gradients]


def optimize() -> dict[str, list]:
    """Make the steps by our Adafactor, some rows at a time."""
    import paddle
    from paddle.base.framework import EagerParamBase

    from launch.training import factored_moments

    factored_moments.rows_at_once = lambda rows, row: min(rows, 16)
    found = {}
    for name, shape in SHAPES.items():
        start, gradients = start_and_gradients(shape)
        weights = EagerParamBase.from_tensor(paddle.to_tensor(start), trainable=True)
        optimizer = factored_moments.Adafactor(RATE, parameters=[weights], weight_decay=DECAY)
        for step, gradient in enumerate(gradients):
            optimizer.step_number = lambda step=step: step
            weights.grad = paddle.to_tensor(gradient)
            optimizer.step()
        found[name] = weights.numpy().tolist()
    return found

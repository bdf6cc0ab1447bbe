"""What the rank of the tests of 8-bit moments does."""

from typing import Any

import numpy as np

SHAPE = (50, 130)
ELEMENTS, STEPS = 50 * 130, 300
GRADIENTS = ((3.0, 4.0), (1.0, 1.0), (0.5, 8.0))


def optimize() -> dict[str, dict]:
    """Steps of AdamW and of ours, of few elements at a time, from the same start with the same gradients."""
    from launch.training import eight_bit_moments

    eight_bit_moments.MOMENT_ELEMENTS = 4096  # a whole piece, and a part of one
    found = {"adamw, one step": train("adamw", "float32", 1), "one step": train("ours", "float32", 1)}
    found |= {"adamw": train("adamw", "float32", STEPS), "float32": train("ours", "float32", STEPS)}
    found |= {"bfloat16": train("ours", "bfloat16", STEPS), "in host memory": train("paged", "float32", STEPS)}
    eight_bit_moments.AdamW8Bit._flips = lambda self: 0
    eight_bit_moments.noise = lambda elements: halves(elements)
    return found | {"bfloat16, nearest": train("ours", "bfloat16", STEPS), "clipping": clip()}


def clip() -> dict[str, list[float]]:
    """What clipping at 2 makes of the gradients of three steps, and the norms."""
    import paddle

    from launch.training.optimizer import GradNorm
    from launch.training.update_in_backward import ClipByPastNorm

    clipping, found = ClipByPastNorm(2.0, GradNorm()), {"gradients": [], "norms": []}
    for step in GRADIENTS:
        for value in step:
            [(_, gradient)] = clipping([(None, paddle.to_tensor([value]))])
            found["gradients"].append(float(gradient))
        clipping([])
        found["norms"].append(clipping.grad_norm.value)
    return found


def few_at_once():
    """Have few rows of an output layer and few elements of a parameter updated at a time; count the former."""
    from launch.training import chunked_loss, eight_bit_moments, update_in_backward

    parts, update = [], update_in_backward._update_part

    def counted(*arguments):
        parts.append(arguments[2])
        update(*arguments)

    eight_bit_moments.MOMENT_ELEMENTS = 2048
    chunked_loss.rows_of_part = lambda rows, columns: 8
    update_in_backward._update_part = counted
    return lambda: {"parts": len(parts)}


def halves(elements: int):
    """The noise with which roundings are to the nearest."""
    import paddle

    return paddle.full([elements], 2**15, "int32")


def train(kind: str, dtype: str, steps: int) -> dict:
    """Train a weight whose gradients differ a thousandfold in size, shrink tenfold, and of whose last column none is.

    Returns its numbers, and what the moments' codes stand for.
    """
    import paddle
    from paddle.base.framework import EagerParamBase

    from launch.offload.host_memory import host_memory
    from launch.training.eight_bit_moments import FIRST_BITS, SECOND_BITS, AdamW8Bit

    random = np.random.default_rng(5)
    start = random.normal(size=SHAPE).astype("float32")
    weight = EagerParamBase.from_tensor(paddle.to_tensor(start).cast(dtype), trainable=True)
    made: Any = AdamW8Bit if kind != "adamw" else paddle.optimizer.AdamW
    optimizer = made(1e-4, parameters=[weight], weight_decay=0.01)
    done = 0
    optimizer.step_number = lambda: done
    if kind == "paged":
        optimizer.keep_in(host_memory())
    size, mean = np.exp(random.normal(size=SHAPE)), random.normal(size=SHAPE)
    for done in range(steps):
        gradient = ((random.normal(size=SHAPE) + mean) * size * (1 if done < 100 else 0.1)).astype("float32")
        gradient[:, -1] = 0
        weight.grad = paddle.to_tensor(gradient).cast(dtype)
        optimizer.step()
        optimizer.clear_grad()
    numbers = {
        "weight": weight.cast("float32"),
        "start": paddle.to_tensor(start),
        "gradient": paddle.to_tensor(gradient),
    }
    if kind == "adamw":
        numbers["second"] = next(iter(optimizer._accumulators["moment2"].values()))[:, :-1]
    else:
        states = [next(iter(optimizer._accumulators[name].values())) for name in optimizer._state_names()]
        numbers["first"] = optimizer._decode(*states[:2], FIRST_BITS)
        numbers["root"] = optimizer._decode(*states[2:], SECOND_BITS)
        if steps > 1:
            numbers["root"] = numbers["root"].reshape(SHAPE)[:, :-1]
    flat = {name: one.numpy().reshape(-1).tolist() for name, one in numbers.items()}
    return flat | ({"host": host_memory().nbytes} if kind == "paged" else {})

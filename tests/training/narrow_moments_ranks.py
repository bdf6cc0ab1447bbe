"""What the rank of the tests of 16-bit moments does."""


def train_all(kinds: list[str], steps: int) -> dict[str, dict]:
    """Those that correct upstream come last."""
    return {kind: train(kind, steps) for kind in kinds}


def train(kind: str, steps: int) -> dict:
    """Steps of an optimizer with random gradients that are 100 times smaller after the first 100; the last column of
    the weight never has any. kind: adamw, upstream, corrected, nearest (corrected, but rounded to the nearest).

    Returns {"weight": its numbers, "moment1", "moment2": of the moments, "dtype": of the moments}.
    """
    import numpy as np
    import paddle
    from paddlenlp import utils

    from launch.families import arithmetic
    from launch.training import narrow_moments

    arithmetic.MOMENT_ELEMENTS = 96  # the weight is updated in three parts
    if kind in ("corrected", "nearest"):
        narrow_moments.correct()
    random = np.random.default_rng(5)
    weight = paddle.create_parameter([16, 16], "float32")
    weight.set_value(paddle.to_tensor(random.normal(size=(16, 16)).astype("float32")))
    made = paddle.optimizer.AdamW if kind == "adamw" else utils.AdamW_16Bit
    optimizer = made(1e-3, parameters=[weight], weight_decay=0.0, multi_precision=True)
    done = 0
    optimizer.step_number = lambda: done
    if kind == "nearest":
        optimizer._round = lambda values: None
    for done in range(steps):
        gradient = random.normal(size=(16, 16)).astype("float32") * (1 if done < 100 else 0.01)
        gradient[:, -1] = 0
        weight.grad = paddle.to_tensor(gradient)
        optimizer.step()
        optimizer.clear_grad()
    found = {name: next(iter(optimizer._accumulators[name].values())) for name in ("moment1", "moment2")}
    numbers = {name: one.astype("float32").numpy().tolist() for name, one in found.items()}
    return numbers | {"weight": weight.numpy().tolist(), "dtype": str(found["moment2"].dtype)}

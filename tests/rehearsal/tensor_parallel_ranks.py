"""Rank functions of test_tensor_parallel_ops.py. Each rank works on its slice of arrays that all can make."""

import numpy as np
import paddle
import paddle.distributed as dist
from paddle.distributed.fleet.layers.mpu import mp_ops

from tests.rehearsal.attempts import start


def _own_slice(whole: list) -> np.ndarray:
    return np.split(np.array(whole, "float32"), dist.get_world_size(), axis=-1)[dist.get_rank()]


def _through(operator, x: np.ndarray, weight: np.ndarray) -> dict[str, list]:
    """operator(x), and the gradient of x for sum(operator(x) * weight)."""
    x = paddle.to_tensor(x, stop_gradient=False)
    y = operator(x)
    (y * paddle.to_tensor(weight)).sum().backward()
    return {"value": y.tolist(), "gradient": x.grad.tolist()}


def identity(x: list, weights: list) -> dict[str, list]:
    """Every rank has the same x, and its own weight for the output."""
    start(bridged=True)
    group = dist.new_group(list(range(dist.get_world_size())))
    weight = np.array(weights[dist.get_rank()], "float32")
    return _through(lambda t: mp_ops._c_identity(t, group), np.array(x, "float32"), weight)


def concat(x: list, weight: list) -> dict[str, list]:
    """Every rank has its slice of x's last axis, and the same weight for the whole output."""
    start(bridged=True)
    group = dist.new_group(list(range(dist.get_world_size())))
    return _through(lambda t: mp_ops._c_concat(t, group), _own_slice(x), np.array(weight, "float32"))


def split(x: list, weight: list) -> dict[str, list]:
    """Every rank has the same x, and the weight of its slice of the output."""
    start(bridged=True)
    group = dist.new_group(list(range(dist.get_world_size())))
    return _through(lambda t: mp_ops._c_split(t, group), np.array(x, "float32"), _own_slice(weight))


def cross_entropy(logits: list, label: list, weight: list) -> dict[str, list]:
    """Loss, this rank's softmax, and the gradient of its logits for sum(loss * weight)."""
    start(bridged=True)
    group = dist.new_group(list(range(dist.get_world_size())))
    logits = paddle.to_tensor(_own_slice(logits), stop_gradient=False)
    loss, softmax = mp_ops._c_softmax_with_cross_entropy(
        logits, paddle.to_tensor(label), group, return_softmax=True, ignore_index=-100
    )
    (loss.squeeze(-1) * paddle.to_tensor(np.array(weight, "float32"))).sum().backward()
    return {
        "loss": loss.squeeze(-1).tolist(),
        "softmax": softmax.tolist(),
        "gradient": logits.grad.tolist(),
    }

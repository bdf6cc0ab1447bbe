"""Rank functions of test_process_group.py."""

import numpy as np
import paddle
import paddle.distributed as dist
from paddle.base import core

from tests.rehearsal.attempts import attempt, start

SUM, MAX = core.ReduceOp.SUM, core.ReduceOp.MAX


def own_values(rank: int, shape: tuple[int, ...] = (6, 2)) -> np.ndarray:
    """Small whole numbers: their sums are exact in every order."""
    return np.random.RandomState(rank).randint(-8, 8, shape).astype("float32")


def own_tensor() -> paddle.Tensor:
    return paddle.to_tensor(own_values(dist.get_rank()))


def results() -> dict[str, list]:
    start(bridged=True)
    group = dist.new_group([0, 1, 2]).process_group
    found = {}

    x = own_tensor()
    group.all_reduce_on_calc_stream(x)
    found["sum"] = x
    x = own_tensor()
    group.all_reduce_on_calc_stream(x, MAX)
    found["max"] = x
    x = own_tensor()
    group.reduce_on_calc_stream(x, 2, SUM)
    found["sum on rank 2"] = x
    x = own_tensor()
    group.broadcast_on_calc_stream(x, 1)
    found["broadcast of rank 1"] = x

    parts = [paddle.zeros([6, 2]) for _ in range(3)]
    group.all_gather_on_calc_stream(parts, own_tensor())
    found["gathered list"] = paddle.concat(parts)
    whole = paddle.zeros([18, 2])
    group.all_gather_into_tensor_on_calc_stream(whole, own_tensor())
    found["gathered tensor"] = whole

    buffer = paddle.full([8], 100.0)  # sharding keeps its gradients in slices of a buffer
    group.reduce_scatter_tensor(buffer._slice(2, 6).reshape_([2, 2]), own_tensor(), SUM, True)
    found["scattered into a buffer"] = buffer
    rows = paddle.zeros([2, 2])
    group.reduce_scatter_tensor_on_calc_stream(rows, own_tensor(), MAX)
    found["scattered max"] = rows
    return {name: tensor.numpy().tolist() for name, tensor in found.items()}


def reduce_scatter_of_wrong_shape() -> str:
    start(bridged=True)
    group = dist.get_group().process_group
    return attempt(lambda: group.reduce_scatter_tensor(paddle.ones([2]), paddle.ones([6]), SUM, True))


def is_leaf_after_reduce_scatter() -> bool:
    start(bridged=True)
    weight = paddle.ones([4])
    weight.stop_gradient = False
    out = paddle.zeros([2])
    out.stop_gradient = False
    dist.get_group().process_group.reduce_scatter_tensor(out, weight * 2.0, SUM, True)
    return out.is_leaf


def float16_sums() -> list[str]:
    start(bridged=True)
    group, x = dist.get_group().process_group, paddle.ones([2], "float16")
    calls = (
        lambda: dist.all_reduce(x),
        lambda: group.reduce(x, 0, SUM, True).wait(),
        lambda: group.all_reduce_on_calc_stream(x, SUM),
    )
    return [attempt(call) for call in calls]


def bfloat16_sum() -> list[float]:
    start(bridged=True)
    x = paddle.full([2], dist.get_rank() + 1.0, "bfloat16")
    dist.all_reduce(x)
    return x.astype("float32").tolist()


def gradients_after_writing() -> dict[str, list | None]:
    """Write 3, 3 over a tensor that requires a gradient, then go backward from the sum of its squares."""
    from launch.rehearsal.process_group import write

    value = paddle.full([2], 3.0)
    value.stop_gradient = False
    tensor = paddle.zeros([2])
    tensor.stop_gradient = False
    write(tensor, value)
    (tensor * tensor).sum().backward()
    tensors = {"tensor": tensor, "value": value}
    return {name: None if x.grad is None else x.grad.tolist() for name, x in tensors.items()}

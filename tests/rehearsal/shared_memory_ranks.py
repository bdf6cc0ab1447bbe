"""Rank functions of test_shared_memory.py."""

import os
import signal
import time

import numpy as np
import paddle
import paddle.distributed as dist
from paddle.base import core

from launch.rehearsal import process_group
from tests.rehearsal.attempts import attempt, start


def own_values(dtype: str, count: int) -> np.ndarray:
    return np.random.RandomState(dist.get_rank()).randint(-8, 8, count).astype(dtype)


def joined():
    """The default group with the bridges; gloo refuses to work, so that what returns has gone through memory."""
    for name in ("all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "barrier"):
        setattr(process_group.Gloo, name, _refuse)
    start(bridged=True)
    return dist.get_group().process_group


def _refuse(*arguments):
    raise AssertionError("gloo was called")


def collectives(dtype: str, count: int) -> dict[str, list]:
    group = joined()
    me, size = dist.get_rank(), dist.get_world_size()
    found = {}
    for op in (core.ReduceOp.SUM, core.ReduceOp.PRODUCT, core.ReduceOp.MAX, core.ReduceOp.MIN):
        found[op.name] = x = paddle.to_tensor(own_values(dtype, count))
        group.all_reduce(x, op, True).wait()
    found["reduce"] = x = paddle.to_tensor(own_values(dtype, count))
    group.reduce(x, 1, core.ReduceOp.SUM, True)
    found["broadcast"] = x = paddle.to_tensor(own_values(dtype, count))
    group.broadcast(x, size - 1, True)
    parts = [paddle.zeros([count], dtype) for _ in range(size)]
    group.all_gather(parts, paddle.to_tensor(own_values(dtype, count)), True)
    found["all_gather"] = paddle.concat(parts)
    for name, gather in (("older form", lambda out, x: group.all_gather(x, out)),
                         ("into", lambda out, x: group.all_gather_into_tensor(out, x, True))):  # fmt: skip
        found[name] = paddle.zeros([size * count], dtype)
        gather(found[name], paddle.to_tensor(own_values(dtype, count)))
    found["all_to_all"] = paddle.zeros([3 * (count // 3)], dtype)
    dist.alltoall_single(found["all_to_all"], paddle.to_tensor(own_values(dtype, 3 * (count // 3))))
    found["transfer"] = x = paddle.to_tensor(own_values(dtype, count))
    (group.send if me == 2 else group.recv)(x, {0: 2, 2: 0}[me], True) if me != 1 else None
    return {name: tensor.numpy().tolist() for name, tensor in found.items()}


def at_different_speeds(rounds: int) -> bool:
    """Collectives in quick succession; the ranks are late in turn. Whether all values were right."""
    group = joined()
    me, size = dist.get_rank(), dist.get_world_size()
    right = True
    for number in range(rounds):
        if number % (size + 1) == me:
            time.sleep(0.002)
        x = paddle.full([16], float(number * size + me))
        total, source = paddle.assign(x), number % size
        group.all_reduce(total, core.ReduceOp.SUM, True)
        group.broadcast(x, source, True)
        right &= bool((x == number * size + source).all())
        right &= bool((total == number * size * size + size * (size - 1) / 2).all())
    return right


def different_collectives() -> str:
    group = joined()
    x = paddle.ones([3 + dist.get_rank()])
    return attempt(lambda: group.all_reduce(x, core.ReduceOp.SUM, True))


def other_forms() -> list:
    """A shape of no values; what comes of arguments by name; of two columns of six; of outputs of other sizes."""
    group = joined()
    nothing, x = paddle.zeros([0, 3]), paddle.ones([2])
    group.all_reduce(nothing, core.ReduceOp.SUM, True)
    group.all_reduce(tensor=x, op=core.ReduceOp.SUM, sync_op=False).wait()
    group.reduce(x, dst=0, op=core.ReduceOp.SUM, sync_op=True)
    group.broadcast(tensor=x, src=0, sync_op=True)
    group.barrier(device_id=0)
    view = paddle.as_strided(paddle.zeros([4, 6]), [4, 2], [6, 1])
    columns = attempt(lambda: group.all_reduce(view, core.ReduceOp.SUM, True))
    four, short, other = paddle.ones([4]), paddle.ones([7]), paddle.ones([4], "float64")
    sizes = [
        attempt(lambda: group.all_gather([four, short], four, True)),
        attempt(lambda: group.all_gather([four, other], four, True)),
        attempt(lambda: group.all_gather_into_tensor(short, four, True)),
    ]
    return [nothing.shape, x.tolist(), columns, sizes]


def a_rank_ends(which: int) -> None:
    """What the others see of the end of a rank that is killed between two collectives."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which the others get as soon as one has ended
    group = joined()
    group.barrier()
    if dist.get_rank() == which:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)
    return print(attempt(group.barrier, seconds=60), flush=True)


def nobody_comes() -> str:
    process_group.TIMEOUT_SECONDS = 0.5
    group = joined()
    return attempt(group.barrier, seconds=60) if dist.get_rank() == 0 else "elsewhere"

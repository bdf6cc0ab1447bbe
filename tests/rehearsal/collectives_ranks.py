"""Rank functions of test_collectives.py."""

import paddle
import paddle.distributed as dist
from paddle.base import core
from paddle.distributed import collective
from paddle.distributed.fleet.layers.mpu import mp_ops

from launch.rehearsal import collectives
from tests.rehearsal.attempts import attempt


def install_twice() -> list[bool]:
    """What the second call left alone."""
    collectives.install()
    before = (core.ProcessGroupGloo.send, collective._new_process_group_impl, mp_ops._C_ops)
    collectives.install()
    after = (core.ProcessGroupGloo.send, collective._new_process_group_impl, mp_ops._C_ops)
    return [one is other for one, other in zip(before, after, strict=True)]


def install_late() -> str:
    dist.init_parallel_env()
    dist.barrier()
    return attempt(collectives.install)


def install_on_a_gpu_build(kind: str) -> list:
    setattr(core, f"is_compiled_with_{kind}", lambda: True)
    send = core.ProcessGroupGloo.send
    return [attempt(collectives.install), core.ProcessGroupGloo.send is send]


def all_to_all() -> str:
    collectives.install()
    dist.init_parallel_env()
    dist.barrier()
    x = paddle.ones([2])
    return attempt(lambda: dist.alltoall([x, x], [x, x]))

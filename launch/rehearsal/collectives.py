"""Train in every parallel layout on CPU processes of one host, over gloo.

    from launch.rehearsal import collectives
    collectives.install()       # before TrainingArguments are parsed: parsing them makes the process groups

Paddle's CPU build has gloo process groups, but its hybrid parallelism was written for NCCL. What lies between
the two is bridged by the neighbouring files, one subject each; every bridge says what upstream does, what
happens without the bridge, and what is done instead:

    rendezvous.py            process groups that read each other's addresses
    process_group.py         collectives that gloo groups lack, or get wrong
    point_to_point.py        sends between pipeline stages
    tensor_parallel_ops.py   operators without a CPU kernel
    fleet_glue.py            checks for a GPU, in tensor and pipeline parallelism
    sharding.py              the same in sharding, and copies that are none on a CPU
    custom_device.py         how these two have the CPU accepted

Written against paddlepaddle 3.3.1 and paddlenlp 3.0.0b4; tests/rehearsal fails where an upgrade makes a
bridge unnecessary or wrong. Every collective is synchronous, nothing overlaps: results are those of a GPU run
in float32, times are not. Not bridged, and an error upstream: all-to-all (mixture of experts), ReduceOp.AVG.
Not seen by the refusal of float16 sums: the gradients of paddle.DataParallel, which calls gloo from C++.
"""

import paddle
from paddle.base import core

from launch.errors import UserError
from launch.rehearsal import (
    fleet_glue,
    point_to_point,
    process_group,
    rendezvous,
    sharding,
    tensor_parallel_ops,
)

_BRIDGES = (rendezvous, process_group, point_to_point, tensor_parallel_ops, fleet_glue, sharding)
_installed = False


def install() -> None:
    """Bridge all gaps, in this process; a second call does nothing.

    Raises UserError on a GPU or XPU build of Paddle, RuntimeError when process groups exist already.
    """
    global _installed
    if _installed:
        return
    if core.is_compiled_with_cuda() or core.is_compiled_with_xpu():
        raise UserError(
            "device: cpu with several processes is a rehearsal, which needs the CPU build of Paddle; "
            "this is a build for cards. Train on them (--device gpu), or rehearse in an environment with "
            "paddlepaddle instead of paddlepaddle-gpu (make setup)"
        )
    if paddle.distributed.is_initialized():
        raise RuntimeError("collectives.install() must come before TrainingArguments: process groups exist already")
    for bridge in _BRIDGES:
        bridge.install()
    _installed = True

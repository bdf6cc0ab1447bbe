"""Train in every parallel layout on CPU processes of one host, over gloo.

    from launch.rehearsal import collectives
    collectives.install()       # before TrainingArguments are parsed: parsing them makes the process groups

Paddle's CPU build has gloo process groups, but its hybrid parallelism was written for NCCL. What lies between
the two is bridged by the neighbouring files, one subject each; every bridge says what upstream does, what
happens without the bridge, and what is done instead:

    process_group.py         where groups meet, collectives that gloo lacks, sends between pipeline stages
    tensor_parallel_ops.py   operators without a CPU kernel
    device_checks.py         checks for a GPU, and copies that are none on a CPU

Written against paddlepaddle 3.3.1 and paddlenlp 3.0.0b4; tests/rehearsal fails where an upgrade makes a
bridge unnecessary or wrong. Every collective is synchronous, nothing overlaps: results are those of a GPU run
in float32, times are not. Not bridged, and an error upstream: all-to-all (mixture of experts), ReduceOp.AVG.
Not seen by the refusal of float16 sums: the gradients of paddle.DataParallel, which calls gloo from C++.
"""

import paddle
from paddle.base import core

from launch.errors import UserError
from launch.rehearsal import device_checks, process_group, tensor_parallel_ops

_BRIDGES = (
    process_group.install_rendezvous,
    process_group.install_collectives,
    process_group.install_point_to_point,
    tensor_parallel_ops.install,
    device_checks.install_fleet,
    device_checks.install_sharding,
)
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
        bridge()
    _installed = True

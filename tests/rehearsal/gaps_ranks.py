"""Rank function of test_gaps.py."""

import paddle
import paddle.distributed as dist
from paddle.base import core
from paddle.distributed.fleet.layers.mpu import mp_ops
from paddle.distributed.fleet.meta_parallel.sharding.group_sharded_optimizer_stage2 import GroupShardedOptimizerStage2
from paddle.distributed.fleet.meta_parallel.sharding.group_sharded_stage3 import GroupShardedStage3
from paddle.distributed.fleet.meta_parallel.sharding.group_sharded_utils import GroupShardedClipGrad

from tests.rehearsal.attempts import attempt, start
from tests.rehearsal.sharding_ranks import make_model, make_optimizer, shard

SUM = core.ReduceOp.SUM


def messages() -> dict[str, str]:
    """What upstream says to each call; none of them reaches the network."""
    start(bridged=False)
    default, group = dist.get_group(), dist.new_group([0, 1])
    x, half, double, label = paddle.ones([4]), paddle.ones([2]), paddle.ones([8]), paddle.zeros([2, 1], "int64")
    model = make_model()
    optimizer, parameters = make_optimizer(model), model.parameters()
    clip, gradients = optimizer._grad_clip, [(one, paddle.ones_like(one)) for one in parameters]
    of_group = {
        "all_reduce_on_calc_stream": (x, SUM),
        "reduce_on_calc_stream": (x, 0, SUM),
        "broadcast_on_calc_stream": (x, 0),
        "all_gather_on_calc_stream": ([x, x], x),
        "all_gather_into_tensor_on_calc_stream": (double, x),
        "reduce_scatter_tensor": (half, x, SUM, True),
        "reduce_scatter_tensor_on_calc_stream": (half, x, SUM),
        "send_partial_on_calc_stream": (x, 1, 2, 0),
        "recv_partial_on_calc_stream": (x, 1, 2, 0),
        "all_gather_partial_on_calc_stream": (x, x, 2, 0),
    }
    others = {
        "c_identity": lambda: mp_ops._c_identity(x, group),
        "c_split": lambda: mp_ops._c_split(x, group),
        "c_concat": lambda: mp_ops._c_concat(x, group),
        "c_softmax_with_cross_entropy": lambda: mp_ops._c_softmax_with_cross_entropy(half[None], label[:1], group),
        "sharding": lambda: shard(model, "os_g"),
        "stage 2": lambda: GroupShardedOptimizerStage2(parameters, optimizer, default, device="cpu"),
        "stage 3": lambda: GroupShardedStage3(model, optimizer, default, device="cpu"),
        "clip, device cpu": lambda: GroupShardedClipGrad(clip, "cpu", default)(gradients),
        "clip, device cpu:0": lambda: GroupShardedClipGrad(clip, "cpu:0", default)(gradients),
        "device number": lambda: dist.ParallelEnv().device_id,
    }
    found = {name: attempt(lambda: getattr(default.process_group, name)(*args)) for name, args in of_group.items()}
    return found | {name: attempt(call) for name, call in others.items()}

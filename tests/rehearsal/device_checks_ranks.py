"""Rank functions of test_device_checks.py."""

import numpy as np
import paddle
import paddle.distributed as dist
from paddle.distributed import fleet
from paddle.distributed.fleet.meta_parallel.pp_utils import p2p_communication
from paddle.distributed.fleet.utils.hybrid_parallel_util import broadcast_input_data

from launch.rehearsal import collectives
from tests.rehearsal.attempts import attempt


def _init_fleet(**degrees: int) -> fleet.base.topology.HybridCommunicateGroup:
    collectives.install()
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 1, "mp_degree": 1, "pp_degree": 1, **degrees}
    fleet.init(is_collective=True, strategy=strategy)
    dist.barrier()
    return fleet.get_hybrid_communicate_group()


def device_id() -> str:
    collectives.install()
    return attempt(lambda: print(dist.ParallelEnv().device_id))


def broadcast_inputs() -> dict[str, list]:
    """Inputs of all kinds that a model gets; what this rank holds after the broadcast."""
    hcg = _init_fleet(mp_degree=2)
    me = dist.get_rank()
    ids = paddle.to_tensor(np.arange(6).reshape(2, 3) + 100 * me)
    positions = paddle.to_tensor(np.arange(3, dtype="float32") + 0.5 + me)
    mask = paddle.to_tensor([me == 0, True])
    broadcast_input_data(hcg, ids, [positions], mask={"causal": mask})  # in place
    return {"ids": ids.tolist(), "positions": positions.tolist(), "mask": mask.tolist()}


def both_stages_send() -> dict:
    """Two stages have something for each other at once, as in the steady state of a pipeline."""
    hcg = _init_fleet(pp_degree=2)
    me = dist.get_rank()
    sent, received = paddle.full([70_000], me + 1.0), paddle.zeros([70_000])
    nobody = [None, None]
    exchange = [*nobody, sent, received] if me == 0 else [sent, received, *nobody]  # previous, next stage
    ending = attempt(lambda: p2p_communication._batched_p2p_ops(*exchange, hcg))
    return {"ending": ending, "sum": received.sum().item() if ending == "returned" else None}

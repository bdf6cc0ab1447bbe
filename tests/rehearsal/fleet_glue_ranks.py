"""Rank functions of test_fleet_glue.py."""

import numpy as np
import paddle
import paddle.distributed as dist
from paddle.distributed import fleet
from paddle.distributed.fleet.meta_parallel.pp_utils import p2p_communication
from paddle.distributed.fleet.utils.hybrid_parallel_util import broadcast_input_data

from tests.rehearsal.attempts import attempt


def _init_fleet(bridged: bool, **degrees: int) -> fleet.base.topology.HybridCommunicateGroup:
    if bridged:
        from launch.rehearsal import collectives

        collectives.install()
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 1, "mp_degree": 1, "pp_degree": 1, **degrees}
    fleet.init(is_collective=True, strategy=strategy)
    dist.barrier()
    return fleet.get_hybrid_communicate_group()


def device_id(bridged: bool) -> str:
    if bridged:
        from launch.rehearsal import collectives

        collectives.install()
    return attempt(lambda: print(dist.ParallelEnv().device_id))


def broadcast_message() -> str:
    hcg = _init_fleet(bridged=False, mp_degree=2)
    return attempt(lambda: broadcast_input_data(hcg, paddle.ones([2])))


def broadcast_inputs() -> dict[str, list]:
    """Inputs of all kinds that a model gets; what this rank holds after the broadcast."""
    hcg = _init_fleet(bridged=True, mp_degree=2)
    me = dist.get_rank()
    ids = paddle.to_tensor(np.arange(6).reshape(2, 3) + 100 * me)
    positions = paddle.to_tensor(np.arange(3, dtype="float32") + 0.5 + me)
    mask = paddle.to_tensor([me == 0, True])
    broadcast_input_data(hcg, ids, [positions], mask={"causal": mask})  # in place; upstream ignores what it returns
    return {"ids": ids.tolist(), "positions": positions.tolist(), "mask": mask.tolist()}


def both_stages_send(in_order: bool) -> dict:
    """Two stages send to each other before either receives, as in the steady state of a pipeline."""
    hcg = _init_fleet(bridged=True, pp_degree=2)
    p2p_communication._sync_send = in_order
    me = dist.get_rank()
    sent, received = paddle.full([70_000], me + 1.0), paddle.zeros([70_000])
    exchanges = {
        0: dict(tensor_send_next=sent, tensor_recv_next=received, tensor_send_prev=None, tensor_recv_prev=None),
        1: dict(tensor_send_prev=sent, tensor_recv_prev=received, tensor_send_next=None, tensor_recv_next=None),
    }
    ending = attempt(lambda: p2p_communication._batched_p2p_ops(hcg=hcg, **exchanges[me]))
    return {"ending": ending, "sum": received.sum().item() if ending == "returned" else None}

"""Rank functions of test_process_group.py."""

import os
import socket
from contextlib import suppress

import numpy as np
import paddle
import paddle.distributed as dist
from paddle.base import core
from paddle.distributed import collective, fleet
from paddle.distributed.fleet.layers.mpu import mp_ops
from paddle.distributed.fleet.meta_parallel.pp_utils import p2p_communication
from paddle.distributed.fleet.utils.hybrid_parallel_util import broadcast_input_data

from launch.rehearsal import collectives
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
    found["exchanged"] = paddle.zeros([6, 2])
    dist.alltoall_single(found["exchanged"], own_tensor(), group=dist.get_group())
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


def pipeline(in_new_group: bool) -> list[float]:
    """Three micro batches forward and backward through four stages; what this stage received, in order.

    Each stage adds 10**rank to what it passes on. All sends and receives are of different sizes.
    """
    start(bridged=True)
    me, last = dist.get_rank(), dist.get_world_size() - 1
    group = dist.new_group(list(range(last + 1))) if in_new_group else None
    received = []

    def travel(micro_batch: int, before: int, after: int):
        x = paddle.full([micro_batch + 1], float(micro_batch))
        if 0 <= before <= last:
            dist.recv(x, src=before, group=group)
            received.append(x.tolist())
        if 0 <= after <= last:
            dist.send(x + 10.0**me, dst=after, group=group)

    for micro_batch in range(3):
        travel(micro_batch, me - 1, me + 1)
    for micro_batch in range(3):
        travel(micro_batch, me + 1, me - 1)
    return received


def parts(dtype: str) -> list:
    """Rank 0 sends each third of a [2, 6] tensor, rank 1 receives it into zeros; rank 1's tensors."""
    start(bridged=True)
    group = dist.get_group().process_group
    received = []
    for part in range(3):
        if dist.get_rank() == 0:
            group.send_partial_on_calc_stream(paddle.arange(1, 13).reshape([2, 6]).astype(dtype), 1, 3, part)
        else:
            x = paddle.zeros([2, 6], dtype)
            x.stop_gradient = False
            group.recv_partial_on_calc_stream(x, 0, 3, part)
            assert x.is_leaf
            received.append(x.astype("float32").tolist())
    return received


def gathered_parts() -> list:
    """Each of three ranks holds its third of one [2, 6] tensor, and 0 elsewhere; all gather it in place."""
    start(bridged=True)
    me = dist.get_rank()
    x = (paddle.arange(1.0, 13.0) * (paddle.arange(12) // 4 == me).astype("float32")).reshape([2, 6])
    x.stop_gradient = False
    dist.get_group().process_group.all_gather_partial_on_calc_stream(x, x, 3, me)
    assert x.is_leaf
    return x.tolist()


def published_addresses() -> list[str]:
    """Rank 0's entry under the common store's key "0" after the default group, and after each of two more."""
    start(bridged=True)
    entries = []

    def read():
        entries.append(bytes(collective._default_store.get("0")).hex())

    for _ in range(3):
        assert attempt(read) == "returned"
        dist.barrier()  # no rank makes the next group while another one still reads
        dist.new_group([0, 1])
    return entries


def sums_in_many_groups() -> list[list[float]]:
    """All-reduce of 10**rank in groups of two to four ranks, twice around; members and sum of this rank's."""
    start(bridged=True)
    me = dist.get_rank()
    pairs = [[0, 1], [2, 3], [0, 2], [1, 3], [0, 3], [1, 2]]
    members = [*pairs, [0, 1, 2], [1, 2, 3], [0, 1, 2, 3], [0, 1], [2, 3]]
    groups = [dist.new_group(ranks) for ranks in members]
    found = []
    for _ in range(2):
        for group in groups:
            if me in group.ranks:
                x = paddle.full([1], 10.0**me)
                dist.all_reduce(x, group=group)
                found.append([*group.ranks, x.item()])
    return found


def delays_of_stores() -> list[bool]:
    """For each connection of this rank to the common store and to that of one more group: may the kernel delay it?"""
    start(bridged=True)
    dist.new_group([0, 1])
    name = collective._default_group_name + str(max(collective._get_group_map()))
    address = bytes(collective._default_store.get(f"rehearsal/{name}/{max(collective._get_group_map())}")).decode()
    ports = {int(one.rpartition(":")[2]) for one in (os.environ["PADDLE_MASTER"], address)}
    delayed = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(descriptor))) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getpeername()[1] in ports:
                delayed.append(not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
    dist.barrier()  # rank 0 has the stores
    return delayed

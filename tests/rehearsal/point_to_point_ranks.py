"""Rank functions of test_point_to_point.py."""

import paddle
import paddle.distributed as dist

from tests.rehearsal.attempts import start


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

"""Sends between pipeline stages.

Upstream: gloo numbers the sends and receives of a group with one counter and matches them by it.
Without the bridge: in groups of three or more the counters of two ranks differ as soon as one of them has
also talked to a third, and the pipeline hangs.
Here: each pair of ranks has a group of its own, made when it first talks.

Upstream: with tensor parallelism inside the stages each rank sends its part of an activation
(send_partial, recv_partial), and the receiving stage puts it together (all_gather_partial). "Part" is the
rank_id-th of nranks equal runs of the flattened tensor.
Without the bridge: NotImplementedError, from gloo.
Here: the parts are sent and gathered as tensors of their own.
"""

import paddle
from paddle.base import core

from launch.rehearsal.process_group import Done, Gloo, finish, write
from launch.rehearsal.rendezvous import create_group, identity

_pairs: dict[tuple[core.ProcessGroup, int, int], core.ProcessGroup] = {}


def _pair(group: core.ProcessGroup, peer: int) -> tuple[core.ProcessGroup, int]:
    """The group of this rank and `peer` (a rank of `group`), and the peer's rank in it."""
    if group.size() == 2:
        return group, peer
    low, high = sorted((group.rank(), peer))
    key = (group, low, high)
    if key not in _pairs:
        name, group_id = identity(group)
        pair_id = 10**6 + 10**4 * group_id + 100 * low + high  # no other group's id, for up to 100 ranks
        _pairs[key] = create_group(f"{name}/{low}-{high}", int(group.rank() == high), 2, pair_id)
    return _pairs[key], int(peer == high)


def _between_pairs(upstream):
    """send or recv of any group, carried out in the group of the two ranks; waits until it is done."""

    def transfer(group, tensor, peer, sync_op=True) -> Done:
        pair, peer_in_pair = _pair(group, peer)
        return finish(upstream(pair, tensor, peer_in_pair, True))

    return transfer


def _part(tensor: paddle.Tensor, nranks: int, rank_id: int) -> slice:
    size = int(tensor.size) // nranks
    return slice(rank_id * size, (rank_id + 1) * size)


def send_partial(group, tensor, dst, nranks=1, rank_id=0) -> Done:
    return group.send(tensor.flatten()[_part(tensor, nranks, rank_id)], dst, True)


@paddle.no_grad()
def recv_partial(group, tensor, src, nranks=1, rank_id=0) -> Done:
    """Receive one part; the rest of `tensor` keeps what it holds."""
    received = paddle.empty([int(tensor.size) // nranks], tensor.dtype)
    group.recv(received, src, True)
    flat = tensor.flatten()
    flat[_part(tensor, nranks, rank_id)] = received
    write(tensor, flat.reshape(tensor.shape))
    return Done()


def all_gather_partial(group, out, tensor, nranks=1, rank_id=0) -> Done:
    """Each rank gives its part of `tensor`; `out` gets them all. Both may be the same tensor."""
    whole = paddle.empty([int(out.size)], out.dtype)
    finish(group.all_gather_into_tensor(whole, tensor.flatten()[_part(tensor, nranks, rank_id)], True))
    write(out, whole.reshape(out.shape))
    return Done()


def install() -> None:
    Gloo.send = Gloo.send_on_calc_stream = _between_pairs(Gloo.send)
    Gloo.recv = Gloo.recv_on_calc_stream = _between_pairs(Gloo.recv)
    Gloo.send_partial = Gloo.send_partial_on_calc_stream = send_partial
    Gloo.recv_partial = Gloo.recv_partial_on_calc_stream = recv_partial
    Gloo.all_gather_partial = Gloo.all_gather_partial_on_calc_stream = all_gather_partial

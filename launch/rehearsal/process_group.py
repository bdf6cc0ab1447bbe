"""gloo's process groups, made to do what Paddle's hybrid parallelism expects of NCCL's.

They meet in a store of their own, have the collectives that gloo lacks, and pipeline stages send to each other in
pairs. Ranks of one machine carry their collectives out in shared memory (shared_memory.py); gloo is left with those
of several nodes, and with what C++ calls: the sums of paddle.DataParallel.
"""

# pyright: reportAttributeAccessIssue=false
# Bridges replace methods of upstream's classes and names of its modules.

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import paddle
from paddle.base import core
from paddle.distributed import collective

from launch.errors import UserError
from launch.nodes.network import address_for_ranks, reserved_ports, split_address
from launch.rehearsal.shared_memory import SharedMemory, available, reduces

TIMEOUT_SECONDS = 900


@dataclass(frozen=True)
class GroupStore:
    """The store in which a group met. It must live as long as the group."""

    name: str
    group_id: int
    store: core.TCPStore


_meetings: dict[core.ProcessGroup, GroupStore] = {}


def create_group(name: str, rank: int, size: int, group_id: int) -> core.ProcessGroup:
    """Return a gloo group of `size` processes, seen from its `rank`; all members call this.

    `name` must be unique in the run, `group_id` in this process, both equal on all members.
    """
    key = f"rehearsal/{name}"
    if rank == 0:
        host = address_for_ranks()
        with reserved_ports(1) as [port], _sockets_without_delay():
            # A world size of 0 makes the constructor return at once instead of waiting for the others.
            store = core.TCPStore(host, port, True, 0, TIMEOUT_SECONDS)
        collective._default_store.set(key, f"{host}:{port}")
    else:
        host, port = split_address(bytes(collective._default_store.get(key)).decode())
        with _sockets_without_delay():
            store = core.TCPStore(host, port, False, 0, TIMEOUT_SECONDS)
    group = core.ProcessGroupGloo.create(store, rank, size, group_id)
    _meetings[group] = GroupStore(name, group_id, store)
    return group


_memories: dict[core.ProcessGroup, SharedMemory] = {}


def shared_memory(group: core.ProcessGroup) -> SharedMemory | None:
    """Return the shared memory of the group's ranks, made when they first call a collective.

    None where they cannot share any.
    """
    if not available():
        return None
    if group not in _memories:
        _memories[group] = _shared(identity(group)[0], group.rank(), group.size())
    return _memories[group]


def _shared(name: str, rank: int, size: int) -> SharedMemory:
    return SharedMemory(name, rank, size, collective._default_store, TIMEOUT_SECONDS)


def identity(group: core.ProcessGroup) -> tuple[str, int]:
    """Return name and id of a group; the default group's where it was not made by create_group."""
    meeting = _meetings.get(group)
    return (meeting.name, meeting.group_id) if meeting else ("default", 0)


def install_rendezvous() -> None:
    """Let every gloo group meet in a store of its own.

    Upstream: a ProcessGroupGloo connects its members twice. The first time they publish their addresses in the
    common TCPStore under "<group id>/<rank in group>", the second time (for the communication context of
    operators) under "<rank in group>" alone, the same keys for all groups.
    Without the bridge: groups read each other's addresses as soon as there are more than two processes: "connect
    [127.0.0.1]: Connection refused", or a time-out, or a wait without end, depending on who was faster.
    Here: rank 0 of a group opens a TCPStore for it, and publishes its address in the common store.

    Upstream: a client of a TCPStore writes each request in several small pieces, and the kernel holds back all but
    the first until the other end acknowledges it, 40 ms later (Nagle's algorithm and delayed acknowledgements).
    Without the bridge: two ranks need 1.5 s to make the groups of a layout, nearly all of it waiting.
    Here: the sockets of stores send at once (TCP_NODELAY): 0.1 s.
    """
    upstream_store = core.create_or_get_global_tcp_store

    def common_store():
        with _sockets_without_delay():
            return upstream_store()

    core.create_or_get_global_tcp_store = common_store
    upstream = collective._new_process_group_impl

    def new_process_group(backend, store, rank, world_size, group_name, pg_options, group_id=0, *args, **kwargs):
        if backend == "gloo":
            return create_group(f"{group_name}/{group_id}", rank, world_size, group_id)
        return upstream(backend, store, rank, world_size, group_name, pg_options, group_id, *args, **kwargs)

    # paddle.distributed.parallel has imported the function by name: the default group, which is the first one
    # and opens the common store, stays upstream's.
    collective._new_process_group_impl = new_process_group


@contextmanager
def _sockets_without_delay() -> Iterator[None]:
    """Let connections that are opened within the block send small messages at once."""
    before = _open_sockets()
    yield
    for descriptor in _open_sockets() - before:
        with suppress(OSError):  # no TCP, or closed by another thread
            connection = socket.socket(fileno=descriptor)
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            finally:
                connection.detach()  # the descriptor stays open: it is the store's


def _open_sockets() -> set[int]:
    """Return the file descriptors of this process; empty where there is no /proc."""
    found = set()
    with suppress(FileNotFoundError):
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                    found.add(int(name))
    return found


Gloo = core.ProcessGroupGloo
SUM = core.ReduceOp.SUM


class Done:
    """The task of a collective that has ended.

    Attributes:
        held: A tensor whose memory lasts as long as the task, as with gloo's: sharding stage 2 keeps its last task,
            and the plan counts that.
    """

    def __init__(self, held: paddle.Tensor | None = None):
        if held is not None:
            self.memory = paddle.empty([0], held.dtype)
            held._share_buffer_to(self.memory)

    def wait(self, *args) -> bool:
        """Return True: the work is done."""
        return True

    is_completed = synchronize = wait


def finish(task) -> Done:
    """Wait for a task and return one that is done."""
    task.wait()
    return Done()


@paddle.no_grad()
def write(tensor: paddle.Tensor, value: paddle.Tensor) -> None:
    """Fill `tensor` with `value`, as a collective does: out of autograd's sight.

    Outside of no_grad, paddle.assign records itself: a tensor that requires a gradient is then no leaf any
    more, its gradient ends in `value`, and training goes on with wrong numbers.
    """
    paddle.assign(value, tensor)


def reduce_scatter_tensor(group, out, tensor, op=SUM, sync_op=True) -> Done:
    """Reduce [size * rows, ...] over the group; `out`, [rows, ...], gets this rank's rows."""
    rows = out.shape[0]
    if tensor.shape != [group.size() * rows, *out.shape[1:]]:
        shapes = f"{list(tensor.shape)} does not split into {list(out.shape)}"
        raise ValueError(f"reduce_scatter over {group.size()} ranks: {shapes}")
    with paddle.no_grad():
        total = tensor.clone()
    finish(group.all_reduce(total, op, True))
    write(out, total[group.rank() * rows : (group.rank() + 1) * rows])
    return Done()


def all_to_all_single(group, out, tensor, out_sizes=(), sizes=(), sync_op=True) -> Done:
    """Send each rank its part of `tensor`, equal ones along the first axis; `out` gets the parts for this rank."""
    memory = shared_memory(group)
    if memory is not None:
        memory.all_to_all(out, tensor)
        return Done()
    gathered = paddle.empty([group.size() * tensor.shape[0], *tensor.shape[1:]], tensor.dtype)
    finish(group.all_gather_into_tensor(gathered, tensor, True))
    of_ranks = gathered.reshape([group.size(), group.size(), -1, *tensor.shape[1:]])
    write(out, of_ranks[:, group.rank()].reshape(out.shape))
    return Done()


def _refusing_float16(reduction):
    """Return the reduction `method(group, tensor, ...)` with an error instead of inf."""

    def checked(group, tensor, *args, **kwargs):
        if tensor.dtype == paddle.float16:
            raise UserError(
                "fp16: float16 cannot be summed over processes on a CPU (gloo returns inf); "
                "rehearse in float32: --fp16 0"
            )
        return reduction(group, tensor, *args, **kwargs)

    return checked


def install_shared_memory() -> None:
    """Let collectives of the ranks of one machine go through shared memory.

    Upstream: gloo passes every message to a thread of its own, which sends it over TCP.
    Without the bridge: the same numbers, but for the order of sums; a rehearsal of eight ranks waits most of its time.
    Here: shared memory, for what shared_memory.py can reduce. The signatures are upstream's.
    """
    names = ("all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "barrier")
    gloo = {name: getattr(Gloo, name) for name in names}

    def all_reduce(group, tensor, op=SUM, sync_op=True):
        memory = shared_memory(group)
        if memory is None or not reduces(tensor, op):
            return gloo["all_reduce"](group, tensor, op, sync_op)
        memory.all_reduce(tensor, op)
        return Done(tensor)

    def reduce(group, tensor, dst, op=SUM, sync_op=True):
        memory = shared_memory(group)
        if memory is None or not reduces(tensor, op):
            return gloo["reduce"](group, tensor, dst, op, sync_op)
        memory.reduce(tensor, dst, op)
        return Done(tensor)

    def broadcast(group, tensor, src, sync_op=True):
        memory = shared_memory(group)
        if memory is None:
            return gloo["broadcast"](group, tensor, src, sync_op)
        memory.broadcast(tensor, src)
        return Done(tensor)

    def all_gather(group, *arguments):
        """Gather (outputs, tensor, sync_op), or, as sharding stage 3 calls it, (tensor, output)."""
        memory = shared_memory(group)
        if memory is None:
            return gloo["all_gather"](group, *arguments)
        if len(arguments) == 2:
            memory.all_gather_into(output=arguments[1], tensor=arguments[0])
        else:
            memory.all_gather(outputs=arguments[0], tensor=arguments[1])
        return Done()

    def all_gather_into_tensor(group, out, tensor, sync_op=True):
        memory = shared_memory(group)
        if memory is None:
            return gloo["all_gather_into_tensor"](group, out, tensor, sync_op)
        memory.all_gather_into(out, tensor)
        return Done()

    def barrier(group, device_id=-1):
        memory = shared_memory(group)
        if memory is None:
            return gloo["barrier"](group, device_id)
        memory.barrier()
        return Done()

    for function in (all_reduce, reduce, broadcast, all_gather, all_gather_into_tensor, barrier):
        setattr(Gloo, function.__name__, function)


def install_collectives() -> None:
    """Install collectives that ProcessGroupGloo lacks, or gets wrong.

    Upstream: tensor parallelism, pipelines and sharding call the variants "*_on_calc_stream", which NCCL groups
    order on the computation's stream, and reduce-scatter.
    Without the bridge: NotImplementedError "ProcessGroupGLOO does not support ... with sync_op and
    use_calc_stream flag", or "... does not support reduce_scatter".
    Here: a CPU has no streams, so they are the plain collectives, waited for. Reduce-scatter is an all-reduce of
    which each rank keeps its rows.

    Upstream: gloo sums float16 into inf, without an error. Here: refused.
    """
    all_reduce = Gloo.all_reduce = _refusing_float16(Gloo.all_reduce)
    reduce = Gloo.reduce = _refusing_float16(Gloo.reduce)
    Gloo.all_reduce_on_calc_stream = lambda group, tensor, op=SUM: finish(all_reduce(group, tensor, op, True))
    Gloo.reduce_on_calc_stream = lambda group, tensor, dst, op=SUM: finish(reduce(group, tensor, dst, op, True))
    Gloo.broadcast_on_calc_stream = lambda group, tensor, src: finish(group.broadcast(tensor, src, True))
    Gloo.all_gather_on_calc_stream = lambda group, outs, tensor: finish(group.all_gather(outs, tensor, True))
    Gloo.all_gather_into_tensor_on_calc_stream = lambda group, out, tensor: finish(
        group.all_gather_into_tensor(out, tensor, True)
    )
    Gloo.all_to_all_single = all_to_all_single
    Gloo.reduce_scatter_tensor = reduce_scatter_tensor
    Gloo.reduce_scatter_tensor_on_calc_stream = reduce_scatter_tensor


_pairs: dict[tuple[core.ProcessGroup, int, int], core.ProcessGroup] = {}


def _pair(group: core.ProcessGroup, peer: int) -> tuple[core.ProcessGroup, int]:
    """Return the group of this rank and `peer` (a rank of `group`), and the peer's rank in it."""
    if group.size() == 2:
        return group, peer
    low, high = sorted((group.rank(), peer))
    key = (group, low, high)
    if key not in _pairs:
        name, group_id = identity(group)
        pair_id = 10**6 + 10**4 * group_id + 100 * low + high  # no other group's id, for up to 100 ranks
        _pairs[key] = create_group(f"{name}/{low}-{high}", int(group.rank() == high), 2, pair_id)
    return _pairs[key], int(peer == high)


_pair_memories: dict[tuple[core.ProcessGroup, int, int], SharedMemory] = {}


def _pair_memory(group: core.ProcessGroup, peer: int) -> SharedMemory:
    low, high = sorted((group.rank(), peer))
    key = (group, low, high)
    if key not in _pair_memories:
        _pair_memories[key] = _shared(f"{identity(group)[0]}/{low}-{high}", int(group.rank() == high), 2)
    return _pair_memories[key]


def _between_pairs(upstream, gives: bool):
    """Return send (gives=True) or recv of any group, carried out between the two ranks and waited for."""

    def transfer(group, tensor, peer, sync_op=True) -> Done:
        if available():
            memory = _pair_memory(group, peer)
            memory.transfer(tensor, memory.rank if gives else 1 - memory.rank)
            return Done()
        pair, peer_in_pair = _pair(group, peer)
        return finish(upstream(pair, tensor, peer_in_pair, True))

    return transfer


def _part(tensor: paddle.Tensor, nranks: int, rank_id: int) -> slice:
    size = int(tensor.size) // nranks
    return slice(rank_id * size, (rank_id + 1) * size)


def send_partial(group, tensor, dst, nranks=1, rank_id=0) -> Done:
    """Send this rank's part of a tensor."""
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
    """Gather the ranks' parts of `tensor` in `out`. Both may be the same tensor."""
    whole = paddle.empty([int(out.size)], out.dtype)
    finish(group.all_gather_into_tensor(whole, tensor.flatten()[_part(tensor, nranks, rank_id)], True))
    write(out, whole.reshape(out.shape))
    return Done()


def install_point_to_point() -> None:
    """Send between pipeline stages.

    Upstream: gloo numbers the sends and receives of a group with one counter and matches them by it.
    Without the bridge: in groups of three or more the counters of two ranks differ as soon as one of them has
    also talked to a third, and the pipeline hangs.
    Here: each pair of ranks has memory (on several nodes: a group) of its own, made when it first talks.

    Upstream: with tensor parallelism inside the stages each rank sends its part of an activation
    (send_partial, recv_partial), and the receiving stage puts it together (all_gather_partial). "Part" is the
    rank_id-th of nranks equal runs of the flattened tensor.
    Without the bridge: NotImplementedError, from gloo.
    Here: the parts are sent and gathered as tensors of their own.
    """
    Gloo.send = Gloo.send_on_calc_stream = _between_pairs(Gloo.send, gives=True)
    Gloo.recv = Gloo.recv_on_calc_stream = _between_pairs(Gloo.recv, gives=False)
    Gloo.send_partial = Gloo.send_partial_on_calc_stream = send_partial
    Gloo.recv_partial = Gloo.recv_partial_on_calc_stream = recv_partial
    Gloo.all_gather_partial = Gloo.all_gather_partial_on_calc_stream = all_gather_partial

"""Every gloo group meets in a store of its own.

Upstream: a ProcessGroupGloo connects its members twice. The first time they publish their addresses in the
common TCPStore under "<group id>/<rank in group>", the second time (for the communication context of
operators) under "<rank in group>" alone, the same keys for all groups.
Without the bridge: groups read each other's addresses as soon as there are more than two processes: "connect
[127.0.0.1]: Connection refused", or a time-out, or a wait without end, depending on who was faster.
Here: rank 0 of a group opens a TCPStore for it, and tells the others where through the common store.
"""

import os
from dataclasses import dataclass

from paddle.base import core
from paddle.distributed import collective

from launch.nodes.address import address_towards, split_address
from launch.processes.ports import reserved_ports

TIMEOUT_SECONDS = 900


@dataclass(frozen=True)
class Meeting:
    """Where a group met. The store must live as long as the group."""

    name: str
    group_id: int
    store: core.TCPStore


_meetings: dict[core.ProcessGroup, Meeting] = {}


def create_group(name: str, rank: int, size: int, group_id: int) -> core.ProcessGroup:
    """A gloo group of `size` processes, seen from its `rank`; all members call this.

    `name` must be unique in the run, `group_id` in this process, both equal on all members.
    """
    key = f"rehearsal/{name}"
    if rank == 0:
        host = _own_address()
        with reserved_ports(1) as [port]:
            # A world size of 1 makes the constructor return at once instead of waiting for the others.
            store = core.TCPStore(host, port, True, 1, TIMEOUT_SECONDS)
        collective._default_store.set(key, f"{host}:{port}")
    else:
        host, port = split_address(bytes(collective._default_store.get(key)).decode())
        store = core.TCPStore(host, port, False, 1, TIMEOUT_SECONDS)
    group = core.ProcessGroupGloo.create(store, rank, size, group_id)
    _meetings[group] = Meeting(name, group_id, store)
    return group


def identity(group: core.ProcessGroup) -> tuple[str, int]:
    """Name and id of a group; those of the default group where it was not made by create_group."""
    meeting = _meetings.get(group)
    return (meeting.name, meeting.group_id) if meeting else ("default", 0)


def install() -> None:
    upstream = collective._new_process_group_impl

    def new_process_group(backend, store, rank, world_size, group_name, pg_options, group_id=0, *args, **kwargs):
        if backend == "gloo":
            return create_group(f"{group_name}/{group_id}", rank, world_size, group_id)
        return upstream(backend, store, rank, world_size, group_name, pg_options, group_id, *args, **kwargs)

    # paddle.distributed.parallel has imported the function by name: the default group, which is the first one
    # and opens the common store, stays upstream's.
    collective._new_process_group_impl = new_process_group


def _own_address() -> str:
    """Where the other ranks find this one: on several nodes, the address on the way to the first of them."""
    if os.environ.get("PADDLE_NNODES", "1") == "1":  # `launch --backend gloo` does not set it
        return "127.0.0.1"
    return address_towards(split_address(os.environ["PADDLE_MASTER"])[0])

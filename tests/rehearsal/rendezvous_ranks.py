"""Rank functions of test_rendezvous.py."""

import os
import socket
from contextlib import suppress

import paddle
import paddle.distributed as dist
from paddle.distributed import collective

from tests.rehearsal.attempts import attempt, start


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

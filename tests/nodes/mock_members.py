"""A roll call of thousands: member 0 is real, in a thread, the others are sockets that say who they are."""

import contextlib
import resource
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from launch.errors import UserError
from launch.nodes.network import Connection
from launch.nodes.roll_call import PROTOCOL, Meeting, Member, roll_call

RANKS_OF_A_NODE = 8
FACTS = {"python": "3.11.7", "sources": "0123456789ab"}


def attend(count: int, flags_of: Callable[[int], dict[str, str]]) -> tuple[str, list[dict]]:
    """(the error of rank 0 or "", what each other was answered). The ranks are on nodes of 8."""
    nodes = tuple(f"node {index // RANKS_OF_A_NODE} (10.0.0.1)" for index in range(count))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with _open_files(2 * count + 64), ThreadPoolExecutor(1) as thread:
        first = thread.submit(_lead, Meeting("rank", address, nodes, 60), _member(0, count, flags_of))
        others = []
        for index in range(1, count):
            others.append(_connect(address))
            others[-1].send({"protocol": PROTOCOL, **asdict(_member(index, count, flags_of))})
        answers = [other.receive(60) for other in others]
        for other in others:
            other.close()
        return first.result(), answers


def _member(index: int, count: int, flags_of: Callable[[int], dict[str, str]]) -> Member:
    facts = FACTS if index % RANKS_OF_A_NODE == 0 else {}
    return Member(index, count, facts, "10.0.0.1", "eth0", flags_of(index))


def _lead(meeting: Meeting, me: Member) -> str:
    try:
        connections = roll_call(meeting, me).connections
    except UserError as error:
        return str(error)
    for connection in connections.values():
        connection.close()
    return ""


def _connect(address: str) -> Connection:
    """Once member 0 listens."""
    host, port = address.split(":")
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            return Connection(socket.create_connection((host, int(port)), timeout=60))


@contextlib.contextmanager
def _open_files(needed: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(needed, before[0]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

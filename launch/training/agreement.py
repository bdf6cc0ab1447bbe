"""What the ranks request at the end of a step, joined on their hosts: a collective would let each wait for its card."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from data_tools.children import close_in_children
from launch.checkpoint.ranks import gather, rank, world_size
from launch.nodes.network import Connection, address_towards, split_address

CHILDREN = 8  # of a rank: none has many connections, also among thousands of ranks
GREETING_SECONDS = 5.0
SECONDS = 3600.0  # that one rank may be later than another; the hang timer ends a run before


class Agreement:
    """Connections by which all ranks learn what any of them requests. All make it, and call it, together.

    Ranks are a tree: rank r has ranks 8 r + 1 to 8 r + 8 as its children. Requests go up to rank 0, and all of them
    come back. In Paddle's TCPStore this would take 90 ms: it sends in small pieces, and the kernel holds back all but
    the first until that is acknowledged.
    """

    def __init__(self):
        host = "127.0.0.1"  # where the other ranks find this one
        if os.environ.get("PADDLE_NNODES", "1") != "1":
            host = address_towards(split_address(os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")[0])[0])
        first, token = CHILDREN * rank() + 1, os.urandom(16).hex()
        children = range(first, min(first + CHILDREN, world_size()))
        self.parent: dict[int, Connection] = {}
        self.children: dict[int, Connection] = {}
        with socket.create_server((host, 0)) as server:
            server.settimeout(SECONDS)
            places = gather((server.getsockname(), token))
            if rank():
                number = (rank() - 1) // CHILDREN
                address, other_token = places[number]
                self.parent[number] = Connection(socket.create_connection(address, timeout=SECONDS))
                self.parent[number].send({"rank": rank(), "token": other_token})
            while len(self.children) < len(children):
                connection = Connection(server.accept()[0])
                with suppress(OSError):  # of a stranger
                    greeting = connection.receive(GREETING_SECONDS)
                    if greeting.get("token") == token:
                        self.children[greeting["rank"]] = connection
        close_in_children(*self.parent.values(), *self.children.values())

    def __call__(self, requested: set[str]) -> set[str]:
        """Return the requests of all ranks.

        Raises:
            RuntimeError: If a rank has ended.
        """
        for other, connection in self.children.items():
            with _naming(other):
                requested = requested.union(connection.receive(SECONDS)["requested"])
        for other, connection in self.parent.items():
            with _naming(other):
                connection.send({"requested": sorted(requested)})
                requested = set(connection.receive(SECONDS)["requested"])
        for other, connection in self.children.items():
            with _naming(other):
                connection.send({"requested": sorted(requested)})
        return requested


@contextmanager
def _naming(other: int) -> Iterator[None]:
    """Name the rank whose connection is lost within the block."""
    try:
        yield
    except OSError as error:
        raise RuntimeError(f"rank {other} has ended before the end of this step: {error}") from error

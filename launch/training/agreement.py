"""What the ranks request at the end of a step, joined on their hosts: a collective would let each wait for its card."""

import socket

from data_tools.children import close_in_children
from launch.checkpoint.ranks import gather, rank
from launch.errors import UserError
from launch.nodes.network import Connection, address_for_ranks

CHILDREN = 8  # of a rank, so that none has many connections among thousands of ranks
SECONDS = 3600.0  # to wait for a rank that is late; the hang timer ends a run earlier


class Agreement:
    """Connections by which all ranks learn what any of them requests. All ranks make it, and call it, together.

    Ranks are a tree: rank r has ranks 8 r + 1 to 8 r + 8 as its children. Requests go up to rank 0, and all of them
    come back. In Paddle's TCPStore this would take 90 ms: it sends in small pieces, and the kernel holds back all but
    the first until that is acknowledged.

    Raises:
        UserError: If a rank cannot be reached.
    """

    def __init__(self):
        with socket.create_server((address_for_ranks(), 0), backlog=CHILDREN) as server:
            server.settimeout(SECONDS)
            places = gather(server.getsockname())
            parents = [places[(rank() - 1) // CHILDREN]] if rank() else []
            try:
                self.parents = [Connection(socket.create_connection(place, timeout=SECONDS)) for place in parents]
            except OSError as error:
                raise UserError(
                    f"rank {rank()} cannot reach rank {(rank() - 1) // CHILDREN} at {parents[0][0]}: "
                    f"{error.strerror or error}. Open the ports between the nodes (docs/multi-node.md)."
                ) from None
            self.children = [Connection(server.accept()[0]) for _ in places[CHILDREN * rank() + 1 :][:CHILDREN]]
        close_in_children(*self.parents, *self.children)

    def __call__(self, requested: set[str]) -> set[str]:
        """Return the requests of all ranks.

        Raises:
            RuntimeError: If a rank has ended.
        """
        try:
            for connection in self.children:
                requested = requested.union(connection.receive(SECONDS)["requested"])
            for connection in self.parents:
                connection.send({"requested": sorted(requested)})
                requested = set(connection.receive(SECONDS)["requested"])
            for connection in self.children:
                connection.send({"requested": sorted(requested)})
        except OSError as error:
            raise RuntimeError(f"another rank has ended before the end of this step: {error}") from error
        return requested

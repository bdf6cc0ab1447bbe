"""The nodes of a run stay connected while it lasts: when one ends badly, the others stop instead of waiting for ever.

Neither the launcher nor NCCL does that: a launcher does not know of the others' ranks, and a collective whose peer is
gone waits. Node 0 hears all others, each other hears node 0, which passes bad news on by ending itself.
"""

import contextlib
import time
from dataclasses import dataclass

from launch.nodes.connection import Connection

LOST = 1  # exit code where a node vanished without telling its own


@dataclass(frozen=True)
class Ended:
    """The bad end of another node; why: as a sentence; exit_code: to end with, too."""

    why: str
    exit_code: int


class Link:
    """connections: to other nodes, by their names."""

    def __init__(self, connections: dict[str, Connection]):
        self._connections = dict(connections)

    def lost(self, seconds: float = 0.0) -> Ended | None:
        """The first bad end of another node that is known, or becomes known within so many seconds."""
        deadline = time.monotonic() + seconds
        while True:
            for name, connection in list(self._connections.items()):
                ended = _hear(name, connection)
                if ended is None:
                    continue
                del self._connections[name]
                connection.close()
                if ended.exit_code:
                    return ended
            if not self._connections or time.monotonic() >= deadline:
                return None
            time.sleep(0.05)

    def end(self, exit_code: int, why: str = "") -> None:
        """Tell the others how this node ended. why: another node's end, where that was the cause."""
        for connection in self._connections.values():
            with contextlib.suppress(OSError):  # it has ended already
                connection.send({"exit_code": exit_code, "why": why})
            connection.close()
        self._connections.clear()


def _hear(name: str, connection: Connection) -> Ended | None:
    """What another node says of its end; None while it says nothing."""
    try:
        message = connection.receive(seconds=0.0)
    except TimeoutError:
        return None
    except OSError as error:
        return Ended(f"{name} is gone ({error})", LOST)
    code, why = int(message.get("exit_code", LOST)), message.get("why")
    return Ended(why or f"{name} ended with exit code {code}", code)

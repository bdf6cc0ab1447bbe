"""Connections between the nodes of a run, which carry JSON objects, one a line, and last as long as the run.

When a node ends badly, the others stop instead of waiting for ever. Neither the launcher nor NCCL does that: a launcher
does not know the others' ranks, and a collective whose peer is gone waits. Node 0 hears all others, each other hears
node 0, which passes bad news on by ending itself.
"""

import contextlib
import json
import socket
import time
from dataclasses import dataclass

MAX_LINE_BYTES = 2**20
# A peer that vanished without a word (power, cable) is noticed after 30 + 3 x 10 seconds.
KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class Connection:
    """send, receive; closed by either side."""

    def __init__(self, connected: socket.socket):
        self._socket = connected
        self._received = b""
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            if hasattr(socket, name):  # Linux's names
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def send(self, message: dict) -> None:
        """Raises OSError when the other side is gone."""
        self._socket.settimeout(None)
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, seconds: float) -> dict:
        """The next message. Raises TimeoutError; ConnectionError at the end, or for what is no such message."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._received:
            if len(self._received) > MAX_LINE_BYTES:
                raise ConnectionError("not one of this run's nodes: no end of the line")
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            new = self._socket.recv(2**16)
            if not new:
                raise ConnectionError("closed by the other side")
            self._received += new
        line, _, self._received = self._received.partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):  # the latter for a hundred thousand brackets
            message = None
        if not isinstance(message, dict):
            raise ConnectionError("not one of this run's nodes: no JSON object")
        return message

    def is_open(self) -> bool:
        """Whether the other side is still there, as far as this machine knows."""
        self._socket.setblocking(False)
        try:
            return self._socket.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        self._socket.close()


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

"""A connection between two nodes that carries JSON objects, one a line."""

import json
import socket
import time

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

"""Addresses and ports of this machine, and connections between the nodes of a run.

Connections carry JSON objects, one a line, and last as long as the run: when a node ends badly, the others stop instead
of waiting for ever. Neither the launcher nor NCCL does that: a launcher does not know the others' ranks, and a
collective whose peer is gone waits. Node 0 is connected with all others, each other with node 0 alone, which passes bad
news on by ending itself.

psutil is imported where it is used: a Python without our packages gets as far as the check that says so.
"""

import contextlib
import ipaddress
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from data_tools.cli import whole_number
from launch.errors import UserError


def split_address(address: str) -> tuple[str, int]:
    """Return ("10.0.0.1", 8090) for "10.0.0.1:8090".

    Raises:
        UserError: For other texts.
    """
    host, _, port = address.rpartition(":")
    if not host or set("/:") & set(host) or whole_number(port, 1, 65535) is None:
        raise UserError(f"MASTER: found {address!r}, expected HOST:PORT such as 10.0.0.1:8090.")
    return host, int(port)


def resolve(host: str) -> str:
    """Return the IPv4 address of a host.

    Raises:
        UserError: If there is no such host.
    """
    try:
        return str(socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except socket.gaierror as error:
        raise UserError(f"MASTER: no host named {host!r} is known here ({error.strerror}). Give its address.") from None


def address_towards(host: str) -> str:
    """Return this machine's own address on the way to another. It sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
        except OSError as error:
            raise UserError(f"MASTER: {host} cannot be reached from here: {error.strerror}.") from None
        return probe.getsockname()[0]


def address_for_ranks() -> str:
    """Return this machine's address by which the other ranks of a run reach it."""
    if os.environ.get("PADDLE_NNODES", "1") == "1":  # `launch --backend gloo` does not set it
        return "127.0.0.1"
    return address_towards(split_address(os.environ["PADDLE_MASTER"])[0])


def interface_of(address: str) -> str:
    """Return the network interface that has an IPv4 address, such as eth0; "lo" for every loopback address."""
    import psutil

    if is_loopback(address):
        return "lo"
    for name, addresses in psutil.net_if_addrs().items():
        if any(found.family == socket.AF_INET and found.address == address for found in addresses):
            return name
    return "unknown interface"


def own_addresses() -> list[str]:
    """Return the addresses of this machine, such as "10.0.0.1 (eth0)", without loopback."""
    import psutil

    return [
        f"{found.address} ({name})"
        for name, addresses in psutil.net_if_addrs().items()
        for found in addresses
        if found.family == socket.AF_INET and not is_loopback(found.address)
    ]


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback one."""
    return ipaddress.ip_address(address).is_loopback


@contextmanager
def reserved_ports(count: int) -> Iterator[list[int]]:
    """Reserve different free ports, which the kernel gives to nobody else within the block.

    A port that is only looked up may be another program's when it is needed, seconds later: ranks then meet a
    stranger there ("Connection reset by peer"). A socket that is bound but does not listen holds it; whoever binds with
    SO_REUSEADDR, as Paddle's TCPStore does, can still listen on it.
    """
    with ExitStack() as sockets:
        reserved = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for bound in reserved:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(("", 0))
        yield [bound.getsockname()[1] for bound in reserved]


MAX_LINE_BYTES = 2**20
# A peer that vanished without a word (power, cable) is noticed after 30 + 3 x 10 seconds.
KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


def encode(message: dict) -> bytes:
    """Return the line that carries a message."""
    return json.dumps(message).encode() + b"\n"


class Connection:
    """send, receive; closed by either side."""

    def __init__(self, connected: socket.socket):
        self._socket = connected
        self._received = b""
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # messages are short and wait for no other
        for name, value in KEEPALIVE.items():
            if hasattr(socket, name):  # Linux's names
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def send(self, message: dict) -> None:
        """Send a message.

        Raises:
            OSError: If the other side is gone.
        """
        self.send_line(encode(message))

    def send_line(self, line: bytes) -> None:
        """Send what `encode` made, as `send` does: for the same message to many."""
        self._socket.settimeout(None)
        self._socket.sendall(line)

    def receive(self, seconds: float) -> dict:
        """Return the next message.

        Raises TimeoutError; ConnectionError at the end, or for a text that is no message.
        """
        deadline = time.monotonic() + seconds
        while b"\n" not in self._received:
            if len(self._received) > MAX_LINE_BYTES:
                raise ConnectionError("not one of this run's nodes: no end of the line")
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            new = self._socket.recv(2**16)
            if not new:
                raise ConnectionError("closed by the other side")
            self._received += new
            if b"\n" not in self._received and time.monotonic() > deadline + 0.001:  # who sends byte by byte waits
                raise TimeoutError
        line, _, self._received = self._received.partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):  # the latter for a hundred thousand brackets
            message = None
        if not isinstance(message, dict):
            raise ConnectionError("not one of this run's nodes: no JSON object")
        return message

    def is_open(self) -> bool:
        """Return whether the other side is still there, as far as this machine knows."""
        self._socket.setblocking(False)
        try:
            return self._socket.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


LOST = 1  # exit code where a node vanished without reporting its own


@dataclass(frozen=True)
class Ended:
    """The failure of another node.

    Attributes:
        why: A sentence.
        exit_code: For this node, too.
    """

    why: str
    exit_code: int


class Link:
    """The connections to other nodes, by their names."""

    def __init__(self, connections: dict[str, Connection]):
        self._connections = dict(connections)

    def lost(self, seconds: float = 0.0) -> Ended | None:
        """Return the first failure of another node that is known, or becomes known within `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            for name, connection in list(self._connections.items()):
                ended = _receive_end(name, connection)
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


def _receive_end(name: str, connection: Connection) -> Ended | None:
    """Return the end that another node reports; None while it reports none."""
    try:
        message = connection.receive(seconds=0.0)
    except TimeoutError:
        return None
    except OSError as error:
        return Ended(f"{name} is gone ({error})", LOST)
    code, why = int(message.get("exit_code", LOST)), message.get("why")
    return Ended(why or f"{name} ended with exit code {code}", code)

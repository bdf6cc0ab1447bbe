"""Ports that no other program gets before they are listened on."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def reserved_ports(count: int) -> Iterator[list[int]]:
    """Different ports that are free, and that the kernel gives to nobody else within the block.

    A port that is only looked up may be another program's when it is needed, seconds later: ranks then meet a
    stranger there ("Connection reset by peer"). A socket that is bound but does not listen holds it; whoever binds with
    SO_REUSEADDR, as Paddle's TCPStore does, can still listen on it.
    """
    with ExitStack() as sockets:
        held = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("", 0))
        yield [one.getsockname()[1] for one in held]

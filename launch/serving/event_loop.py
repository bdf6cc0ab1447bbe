"""Run the REST and the gRPC server in one event loop until they are stopped."""

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from launch.errors import UserError
from launch.serving.rest import make_app
from launch.serving.rest_requests import LOOPBACK, TimedHead
from launch.serving.rpc.server import RpcServer
from launch.serving.service import Service


class EngineEnded(Exception):
    """The thread that answers has ended although nobody has stopped the server."""


GRACE_SECONDS = 15.0  # time for answers in progress when a stop is requested
END_SECONDS = 19.0  # from there to the end of the process, whatever computes: most who stop it wait for 20 s
BACKLOG = 1024  # connections that the kernel keeps for us
ACCEPTED = 8  # of them at once: asyncio takes so many before it handles one, and writes as many lines where it cannot


@dataclass(frozen=True)
class Addresses:
    """The addresses of the servers.

    Attributes:
        port, grpc_port: 0 takes any free port.
    """

    host: str
    port: int
    grpc_port: int

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the servers."""
        return self.host in LOOPBACK


def bind(addresses: Addresses) -> socket.socket:
    """Return the socket of REST, bound but not listening: connections are refused until the models are loaded.

    Raises:
        UserError: If the address cannot be taken.
    """
    server = socket.socket(socket.AF_INET6 if ":" in addresses.host else socket.AF_INET)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with _address_errors(addresses):
        server.bind((addresses.host, addresses.port))
    return server


@contextmanager
def _address_errors(addresses: Addresses) -> Iterator[None]:
    """Turn an OSError about REST's address into a UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"--host {addresses.host} --port {addresses.port}: {error.strerror}. Choose another, such as --port "
            f'{addresses.port + 10}, of make ARGS="--port {addresses.port + 10}"; 0 takes any that is free.'
        ) from None


def run(service: Service, rest: socket.socket, addresses: Addresses, key: str | None, ready: Callable) -> None:
    """Serve until SIGTERM or Ctrl-C. ready(port, grpc_port) is called once both answer.

    Raises:
        UserError: If the port of gRPC cannot be taken, or another process has begun to listen on the port of REST,
            which binding alone does not prevent.
        EngineEnded: If nothing can be answered any more.
    """
    with _address_errors(addresses):
        rest.listen(BACKLOG)
    service.engine.start()
    try:
        asyncio.run(_serve(service, rest, addresses, key, ready))
    finally:
        service.engine.stop(GRACE_SECONDS)


def end_within(seconds: float) -> None:
    """End this process after `seconds` where it has not ended by then.

    No thread can be made to leave a step of a model, or a text that is encoded.
    """

    def end() -> None:
        print(f"error: a computation has not ended within {seconds:g} s: it is cut off", file=sys.stderr, flush=True)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


async def _serve(service: Service, rest: socket.socket, addresses: Addresses, key: str | None, ready: Callable) -> None:
    host = f"[{addresses.host}]" if ":" in addresses.host else addresses.host
    try:
        rpc = RpcServer(service, f"{host}:{addresses.grpc_port}", key)
    except RuntimeError as error:
        raise UserError(
            f"--grpc_port {addresses.grpc_port} on {addresses.host}: {error}. Choose another, of make "
            f'ARGS="--grpc_port {addresses.grpc_port + 10}"; 0 takes any that is free.'
        ) from None
    server = uvicorn.Server(_config(service, addresses, key))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    service.engine.on_failure = lambda: loop.call_soon_threadsafe(stop.set)
    await rpc.start()
    running = asyncio.create_task(server.serve(sockets=[rest]))
    while not server.started and not running.done():
        await asyncio.sleep(0.01)
    rest.listen(BACKLOG)
    ready(rest.getsockname()[1], rpc.port)
    await stop.wait()
    end_within(END_SECONDS)
    service.refuse_more()
    server.should_exit = True
    await asyncio.gather(running, rpc.stop(GRACE_SECONDS))
    if service.engine.ended:
        raise EngineEnded


def _config(service: Service, addresses: Addresses, key: str | None) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(service, key, addresses.is_local),
        http=TimedHead,
        log_level="error",
        access_log=False,
        lifespan="off",
        backlog=ACCEPTED,
        timeout_graceful_shutdown=int(GRACE_SECONDS),
    )

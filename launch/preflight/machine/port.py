"""Can several nodes meet where they shall, as far as one of them can tell alone?"""

import errno
import socket

from launch.config.run_config import Nodes
from launch.errors import UserError
from launch.nodes.address import own_addresses, resolve, split_address
from launch.preflight.report import Finding


def check_meeting_point(nodes: Nodes) -> list[Finding]:
    """Which node this is; on node 0: that the meeting point is on this machine and free. Nothing on one node."""
    if nodes.count == 1:
        return []
    assert nodes.master is not None  # several nodes have one
    try:
        host, port = split_address(nodes.master)
        address = resolve(host)
    except UserError as error:
        return [Finding(False, "nodes", str(error), "MASTER=HOST:PORT of the node with RANK=0")]
    fault = _fault(host, (address, port)) if nodes.rank == 0 else None
    return [fault or Finding(True, "nodes", nodes.describe())]


def _fault(host: str, address: tuple[str, int]) -> Finding | None:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port just left is free
        try:
            one.bind(address)
        except PermissionError as error:
            return Finding(False, "nodes", f"port {address[1]} on {host}: {error.strerror}", "a port above 1023")
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                found = f"{host} is not an address of this machine, which has {', '.join(own_addresses()) or 'none'}"
                return Finding(False, "nodes", found, "MASTER= names the node with RANK=0, or RANK= is another")
            found = f"port {address[1]} on {host} is used by another process"
            return Finding(False, "nodes", found, f"another port: MASTER={host}:{_free_port(address[0])}, on all nodes")
    return None


def _free_port(host: str) -> int:
    with socket.socket() as one:
        one.bind((host, 0))
        return one.getsockname()[1]

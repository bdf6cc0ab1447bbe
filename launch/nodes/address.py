"""Addresses and ports of this machine, and SLURM's short form of a list of hosts.

psutil is imported where it is used: a Python without our packages gets as far as the check that says so.
"""

import ipaddress
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product

from launch.errors import UserError


def split_address(address: str) -> tuple[str, int]:
    """("10.0.0.1", 8090) for "10.0.0.1:8090". Raises UserError for anything else."""
    host, _, port = address.rpartition(":")
    if not host or set("/:") & set(host) or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UserError(f"MASTER: found {address!r}, expected HOST:PORT such as 10.0.0.1:8090.")
    return host, int(port)


def resolve(host: str) -> str:
    """The IPv4 address of a host; the launcher compares addresses as text, so names must not reach it.

    Raises UserError when there is no such host.
    """
    try:
        return str(socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except socket.gaierror as error:
        raise UserError(f"MASTER: no host named {host!r} is known here ({error.strerror}). Give its address.") from None


def address_towards(host: str) -> str:
    """This machine's own address on the way to another. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
        except OSError as error:
            raise UserError(f"MASTER: {host} cannot be reached from here: {error.strerror}.") from None
        return probe.getsockname()[0]


def interface_of(address: str) -> str:
    """The network interface that has an IPv4 address, such as eth0; "lo" for every loopback address."""
    import psutil

    if is_loopback(address):
        return "lo"
    for name, addresses in psutil.net_if_addrs().items():
        if any(found.family == socket.AF_INET and found.address == address for found in addresses):
            return name
    return "unknown interface"


def own_addresses() -> list[str]:
    """["10.0.0.1 (eth0)", ...], without loopback."""
    import psutil

    return [
        f"{found.address} ({name})"
        for name, addresses in psutil.net_if_addrs().items()
        for found in addresses
        if found.family == socket.AF_INET and not is_loopback(found.address)
    ]


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


NAME = r"(?:[^,\[\]\s]+|\[[^\[\]\s]*\])+"  # text and brackets; a comma outside of brackets ends it
LIST = re.compile(f"{NAME}(?:,{NAME})*")
BRACKETS = re.compile(r"\[([^\[\]]*)\]")


def expand_hosts(hosts: str) -> list[str]:
    """["node01", "node02", "node07"] for "node[01-02,07]"; several brackets in a name are all combinations.

    As `scontrol show hostnames` does it: numbers keep their leading zeros, the last bracket counts fastest.
    Raises UserError for what is no such list.
    """
    if not LIST.fullmatch(hosts):
        raise UserError(f"list of hosts: found {hosts!r}, expected one such as node[01-03,07],login1.")
    return [host for name in re.findall(NAME, hosts) for host in _expand_name(name)]


def _expand_name(name: str) -> list[str]:
    parts = BRACKETS.split(name)  # text, bracket, text, bracket, ..., text
    choices = [[part] if number % 2 == 0 else _expand_ranges(part, name) for number, part in enumerate(parts)]
    return ["".join(chosen) for chosen in product(*choices)]


def _expand_ranges(ranges: str, name: str) -> list[str]:
    """["01", "02", "07"] for "01-02,07"."""
    numbers = []
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            raise UserError(f"list of hosts: found [{ranges}] in {name!r}, expected such as [01-03,07].")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers


@contextmanager
def reserved_ports(count: int) -> Iterator[list[int]]:
    """Different ports that are free, and that the kernel gives to nobody else within the block.

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

"""Addresses of this machine: which one leads to another, and through which interface.

psutil is imported where it is used: a Python without our packages gets as far as the check that says so.
"""

import ipaddress
import socket

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
        return socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
    except socket.gaierror as error:
        raise UserError(f"MASTER: no host named {host!r} is known here ({error.strerror}). Give its address.") from None


def address_towards(host: str) -> str:
    """This machine's own address on the way to another. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect((host, 9))
        except OSError as error:
            raise UserError(f"MASTER: {host} cannot be reached from here: {error.strerror}.") from None
        return one.getsockname()[0]


def interface_of(address: str) -> str:
    """The network interface that has an IPv4 address, such as eth0; "lo" for every loopback address."""
    import psutil

    if is_loopback(address):
        return "lo"
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.family == socket.AF_INET and one.address == address for one in addresses):
            return name
    return "unknown interface"


def own_addresses() -> list[str]:
    """["10.0.0.1 (eth0)", ...], without loopback."""
    import psutil

    return [
        f"{one.address} ({name})"
        for name, addresses in psutil.net_if_addrs().items()
        for one in addresses
        if one.family == socket.AF_INET and not is_loopback(one.address)
    ]


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback

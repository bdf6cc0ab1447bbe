"""Is the port free where the ranks shall meet?"""

import errno
import socket

from launch.preflight.report import Finding


def check_port(master: str) -> list[Finding]:
    """master: "host:port". Only this machine's own ports can be tried; another host is left to the
    launcher."""
    host, _, port = master.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        return [Finding(False, "port", f"MASTER={master}", "MASTER=HOST:PORT, such as 10.0.0.1:8090")]
    try:
        address = socket.getaddrinfo(host, int(port), socket.AF_INET, socket.SOCK_STREAM)[0][4]
    except socket.gaierror:
        return [Finding(False, "port", f"MASTER={master}: no host of that name", "MASTER=HOST:PORT")]
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port just left is free
        try:
            one.bind(address)
        except PermissionError as error:
            return [Finding(False, "port", f"{port} on {host}: {error.strerror}", "a port above 1023")]
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return [Finding(True, "port", f"{host} is another machine")]
            found = f"{port} on {host} is used by another process"
            return [Finding(False, "port", found, f"another port: MASTER={host}:{_free_port(address[0])}")]
    return [Finding(True, "port", f"{port} on {host} is free")]


def _free_port(host: str) -> int:
    with socket.socket() as one:
        one.bind((host, 0))
        return one.getsockname()[1]

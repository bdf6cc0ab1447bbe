"""The check of the point where several nodes meet."""

import socket

from launch.config.run_config import ONE_NODE, Nodes
from launch.preflight.host import check_meeting_point


def told(master: str, rank: int = 0) -> tuple[bool, str, str]:
    """The only finding for a node of two: whether ok, what was found, the fix."""
    (finding,) = check_meeting_point(Nodes(2, rank, master, "NNODES, RANK, MASTER"))
    assert finding.subject == "nodes"
    return finding.ok, finding.found, finding.fix


def test_used_port():
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        port = used.getsockname()[1]
        ok, found, fix = told(f"127.0.0.1:{port}")
        assert told(f"127.0.0.1:{port}", rank=1)[0], "node 0 may be waiting there already"
    assert (ok, found) == (False, f"port {port} on 127.0.0.1 is used by another process")
    assert fix.startswith("another port: MASTER=127.0.0.1:") and fix.endswith(", on all nodes")
    description = f"2, this is 0, they meet at 127.0.0.1:{port} (NNODES, RANK, MASTER)"
    assert told(f"127.0.0.1:{port}") == (True, description, "")


def test_masters_that_cannot_be_met_at():
    assert check_meeting_point(ONE_NODE) == []
    for master in ("8090", "host", "127.0.0.1:http", "127.0.0.1:99999", "http://10.0.0.1:8090"):
        ok, found, _ = told(master)
        assert (ok, found) == (False, f"MASTER: found {master!r}, expected HOST:PORT such as 10.0.0.1:8090.")
    ok, found, _ = told("no-such-host.invalid:8090", rank=1)
    assert not ok and found.startswith("MASTER: no host named 'no-such-host.invalid' is known here")
    ok, found, fix = told("192.0.2.199:8090")
    assert not ok and found.startswith("192.0.2.199 is not an address of this machine, which has ")
    assert fix == "MASTER= names the node with RANK=0, or RANK= is another"
    assert told("192.0.2.199:8090", rank=1)[0]

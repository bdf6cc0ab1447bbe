"""The connection of nodes while a run lasts."""

import socket

from launch.nodes.network import Connection, Link


def pair() -> tuple[Connection, Connection]:
    server = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(server.getsockname())
    far, _ = server.accept()
    server.close()
    return Connection(near), Connection(far)


def test_silence_and_a_good_end_are_no_loss():
    near, far = pair()
    link, other = Link({"node 1": near}), Link({"node 0": far})
    assert link.lost() is None
    other.end(0)
    assert link.lost(seconds=5) is None
    assert link.lost() is None


def test_the_first_cause_is_passed_on():
    """Node 0 stops because of node 2 and says so to node 1."""
    near, far = pair()
    Link({"node 1": far}).end(7, "node 2 ended with exit code 7")
    assert Link({"node 0": near}).lost(seconds=5).why == "node 2 ended with exit code 7"


def test_ending_twice_and_with_nobody_left_does_nothing():
    near, far = pair()
    far.close()
    link = Link({"node 1": near})
    link.end(1)
    link.end(1)

"""A port that was promised to a run's ranks is theirs when they come to listen on it, seconds later."""

import os
import socket

import pytest

from launch.nodes.network import reserved_ports
from launch.processes.fork import run_ranks
from launch.processes.logs import last_lines, log_path


def bind(port: int, reuse: bool) -> None:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        one.bind(("127.0.0.1", port))
        one.listen()


def test_strangers_cannot_have_it_and_those_it_was_promised_to_can():
    with reserved_ports(3) as ports:
        assert len(set(ports)) == 3
        for port in ports:
            bind(port, reuse=True)
            with pytest.raises(OSError, match="Address already in use"):
                bind(port, reuse=False)
    bind(ports[0], reuse=False)


def test_the_ranks_endpoints_are_held_while_they_run(tmp_path):
    def try_to_take_all(rank):
        for endpoint in os.environ["PADDLE_TRAINER_ENDPOINTS"].split(","):
            try:
                bind(int(endpoint.rpartition(":")[2]), reuse=False)
            except OSError as error:
                print(error.strerror)

    assert run_ranks(2, try_to_take_all, tmp_path).exit_code == 0
    assert last_lines(log_path(tmp_path, 1)) == "\n".join(["Address already in use"] * 2)

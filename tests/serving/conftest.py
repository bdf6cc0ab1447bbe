"""The server in front of a fake model, one for the tests of a file, and a client of it."""

import pytest

from tests.serving.servers import start_fake


@pytest.fixture(scope="module")
def server():
    server = start_fake()
    yield server
    assert server.process.poll() is None, "".join(server.said)
    assert server.stop() == 0


@pytest.fixture(scope="module")
def client(server):
    return server.client()

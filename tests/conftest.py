"""Fixtures for all tests."""

import pytest

from tests.ranks import RankServer


@pytest.fixture(scope="session")
def ranks():
    """ranks(n, "tests.module:function", *args): the function's result on each of n ranks (tests/ranks.py)."""
    server = RankServer()
    yield server
    server.close()

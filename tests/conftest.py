"""Fixtures for all tests."""

import os
import signal

import pytest

from tests.ranks import RankServer
from tests.recipes.rehearsing import Rehearsals


def pytest_configure():
    """What pytest was started with must not reach what tests start: make's ARGS, nohup's ignored SIGHUP."""
    # Below nohup and in the background signals are ignored, which what tests start would inherit.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("ARGS", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES"):
        os.environ.pop(name, None)
    os.environ["LAUNCH_LANG"] = "en"  # tests read messages, wherever they are run


@pytest.fixture(scope="session")
def ranks():
    """ranks(n, "tests.module:function", *args): the function's result on each of n ranks (tests/ranks.py)."""
    server = RankServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def rehearsals(tmp_path_factory) -> Rehearsals:
    """rehearsals("pretrain-tiny"): the recipe's rehearsal, done once (tests/recipes/rehearsing.py)."""
    return Rehearsals(tmp_path_factory.mktemp("rehearsals"))


@pytest.fixture
def ctrl_c():
    """Ctrl-C as at a terminal, also where pytest runs in the background, whose shell has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)

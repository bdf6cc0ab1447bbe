"""Fixtures for all tests."""

import gc
import importlib.util
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.left_processes import describe, left_processes, mark_session
from tests.ranks import RankServer
from tests.recipes.rehearsing import rehearsed
from tests.runs import Runs
from tests.store import kept
from tests.tiers import EXPRESSIONS, ROOT, UNKNOWN_SECONDS, file_seconds
from tests.time_limit import TimeLimit


def pytest_configure(config):
    """What pytest was started with must not reach what tests start: make's ARGS, nohup's ignored SIGHUP."""
    if importlib.util.find_spec("fused_ln"):
        raise pytest.UsageError(
            "fused_ln is installed: its operators round otherwise than the stock layers that tests compare to the bit. "
            "The tests of custom_ops build it for themselves. Remove it: make custom-ops ARGS=--remove"
        )
    # Below nohup and in the background signals are ignored, which what tests start would inherit.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("ARGS", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES"):
        os.environ.pop(name, None)
    # Each of a thousand processes would compile the repository's modules anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # MKL's threads wait 0.2 s for more work in a loop: two workers, each with two threads, take each other's cores.
    os.environ.setdefault("KMP_BLOCKTIME", "0")
    os.environ["LAUNCH_LANG"] = "en"  # tests read messages, wherever they are run
    os.environ["LAUNCH_MATMUL"] = ""  # plans must not depend on this machine
    if not hasattr(config, "workerinput"):
        mark_session()
    config.pluginmanager.register(TimeLimit(config))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is collected stays to the end: neither this process nor a fork of it looks through it for garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session):
    """A process that a test leaves behind eats a core and holds the output open: it is named and ended. The workers
    have ended before."""
    yield
    if hasattr(session.config, "workerinput"):
        return
    for process in left_processes():
        print(f"\na test has left process {describe(process)}", file=sys.stderr)
        process.kill()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Where several workers share the files: the longest first, so that no worker ends long after another."""
    if hasattr(config, "workerinput"):
        tier = next((tier for tier, marks in EXPRESSIONS.items() if marks == config.option.markexpr), "test")
        seconds = file_seconds(tier)
        items.sort(key=lambda item: -seconds.get(item.path.relative_to(ROOT).as_posix(), UNKNOWN_SECONDS))  # stable


def pytest_collection_finish():
    """A process with Paddle in it cannot be forked well, and hides what commands import by themselves."""
    if "paddle" in sys.modules:
        raise pytest.UsageError("a test file imports Paddle: import it in a rank (tests/ranks.py)")


@pytest.fixture(scope="session")
def ranks():
    """ranks(n, "tests.module:function", *args): the function's result on each of n ranks (tests/ranks.py)."""
    server = RankServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def runs(ranks) -> Runs:
    """runs("finetuning", layout=TP2, lora=1): a trained run, shared by all tests (tests/runs.py)."""
    return Runs(ranks)


@pytest.fixture(scope="session")
def rehearsals():
    """rehearsals("pretrain-tiny"): the recipe's rehearsal, done once (tests/recipes/rehearsing.py)."""
    return rehearsed


@pytest.fixture
def ctrl_c():
    """Ctrl-C as at a terminal, also where pytest runs in the background, whose shell has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def served(ranks) -> Path:
    """The folder of a model, a LoRA and a prefix (tests/serving/material.py), to read alone."""
    return kept("material/served", lambda folder: ranks(1, "tests.serving.material:make_served", str(folder)))[0]

"""What a test that hangs leaves behind, of toy tests in a process of their own."""

import subprocess
import sys

import pytest

from tests.store import ROOT

CONFTEST = """
from tests import time_limit

time_limit.SECONDS_TO_FAIL = 1

def pytest_configure(config):
    config.pluginmanager.register(time_limit.TimeLimit(config))
"""
TOYS = """
import threading, time

def helper():
    time.sleep(600)

def test_waits():
    threading.Thread(target=helper, daemon=True).start()
    time.sleep(600)

def test_computes():
    sum(range(10**14))  # comes back to no line of Python, and lets no other thread run

def test_passes():
    assert 1 + 1 == 2
"""


@pytest.fixture
def toys(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_toys.py").write_text(TOYS)

    def run(*words: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null", "--timeout", "1"]
        command += [*words, f"--rootdir={tmp_path}", str(tmp_path)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)

    return run


def test_a_test_that_hangs_is_named_with_all_stacks_and_the_others_run(toys):
    done = toys("-n", "1")
    assert "2 failed, 1 passed" in done.stdout
    failures = done.stdout.partition("Failed: test_toys.py::test_waits has not ended within 1 s\n")[2]
    waits, _, computes = failures.partition("crashed while running")
    assert "in helper\n" in waits and "in test_waits\n" in waits
    assert computes.startswith(" 'test_toys.py::test_computes'")
    assert "Timeout (0:00:02)!" in computes and "in helper\n" in computes and "in test_computes\n" in computes

"""Every test has a time limit. One that reaches it fails, and its report has its name and the stacks of all threads.

A test that does not come back to Python even then, as from a loop in C, is ended with its process: by faulthandler,
which needs no interpreter. It writes to a file, which the report of the lost worker shows; without workers to stderr.
"""

import faulthandler
import os
import signal
import tempfile
from pathlib import Path

import pytest
from pytest_timeout import is_debugging

LONG_SECONDS = 900.0  # for tests that are long or nightly, and state nothing else
SECONDS_TO_FAIL = 60.0  # between the failure and the end of the process: fixtures end theirs
STACKS = "stacks"  # a worker's input: the file for the stacks


class TimeLimit:
    """A plugin: what pytest-timeout does at the limit, which it finds in `timeout` of pyproject.toml and in markers."""

    def __init__(self, config: pytest.Config):
        self.folder = tempfile.TemporaryDirectory()
        given = getattr(config, "workerinput", {}).get(STACKS)
        self.file = open(given, "w+") if given else os.fdopen(os.dup(2), "w")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node) -> None:
        node.workerinput[STACKS] = os.path.join(self.folder.name, node.workerinput["workerid"])

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report) -> None:
        stacks = Path(report.node.workerinput[STACKS]).read_text(errors="replace")
        report.longrepr += f"\n{stacks}"

    def pytest_timeout_set_timer(self, item: pytest.Item, settings) -> bool:
        if is_debugging():
            return True
        limit = settings.timeout
        states_none = item.config.getoption("timeout") is None and not item.get_closest_marker("timeout")
        if states_none and (item.get_closest_marker("long") or item.get_closest_marker("nightly")):
            limit = max(limit, LONG_SECONDS)

        def fail(number, frame) -> None:
            pytest.fail(f"{item.nodeid} has not ended within {limit:g} s\n{_stacks()}")

        signal.signal(signal.SIGALRM, fail)
        signal.setitimer(signal.ITIMER_REAL, limit)
        faulthandler.dump_traceback_later(limit + SECONDS_TO_FAIL, exit=True, file=self.file)
        return True

    def pytest_timeout_cancel_timer(self) -> bool:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        return True

    pytest_enter_pdb = pytest_timeout_cancel_timer


def _stacks() -> str:
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read()

"""Processes that tests have left behind: all that a session of pytest starts inherit its mark."""

import os
import shlex
import time

import psutil

MARK = "PYTEST_SESSION_MARK"
GRACE_SECONDS = 10  # a process that was told to end may need some time


def mark_session() -> None:
    os.environ[MARK] = f"{os.getpid()}-{time.time_ns()}"


def left_processes() -> list[psutil.Process]:
    """Those of this session that run on after the time that they have to end."""
    end = time.monotonic() + GRACE_SECONDS
    while (running := [one for one in psutil.process_iter() if _is_marked(one)]) and time.monotonic() < end:
        time.sleep(0.1)
    return running


def describe(process: psutil.Process) -> str:
    with process.oneshot():
        try:
            return f"{process.pid} in {process.cwd()}: {shlex.join(process.cmdline())}"
        except psutil.Error:
            return str(process.pid)


def _is_marked(process: psutil.Process) -> bool:
    """Not this process itself: it was started without the mark."""
    try:
        return process.environ().get(MARK) == os.environ[MARK] and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False

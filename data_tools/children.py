"""Processes that help this one: they end with it, and nothing waits for their end without a limit.

A helper that reads a pipe ends where the pipe closes. A process that is forked meanwhile would hold a copy of our end,
so pipes to helpers are closed in such processes.
"""

import contextlib
import io
import os
import subprocess
import sys
import time
import weakref
from multiprocessing.process import BaseProcess

SECONDS_TO_END = 5.0

_pipes: weakref.WeakSet = weakref.WeakSet()


def close_in_children(*pipes) -> None:
    """Close our ends of pipes in every process that is forked from this one: streams of Popen, or connections."""
    for pipe in pipes:
        pipe = pipe.buffer if isinstance(pipe, io.TextIOWrapper) else pipe
        _pipes.add(getattr(pipe, "raw", pipe))  # the raw file: what is not sent yet is for the parent to send


def _close_pipes() -> None:
    for pipe in list(_pipes):
        pipe.close()


os.register_at_fork(after_in_child=_close_pipes)


def end_process(process: subprocess.Popen | BaseProcess, name: str, seconds: float = SECONDS_TO_END) -> int | None:
    """Wait for a process that was asked to end, as by closing its pipe, and return its exit code.

    After `seconds` it gets SIGTERM, after as many again SIGKILL, and a line on stderr names it. None where it does not
    end even so: the kernel holds it.
    """
    code = _code(process, seconds)
    if code is not None:
        return code
    for end in (process.terminate, process.kill):
        end()
        code = _code(process, seconds)
        if code is not None:
            break
    print(f"{name} (process {process.pid}) has not ended within {seconds:g} s: it was killed", file=sys.stderr)
    return code


def _code(process: subprocess.Popen | BaseProcess, seconds: float) -> int | None:
    if isinstance(process, BaseProcess):
        end = time.monotonic() + seconds
        process.join(seconds)
        while process.exitcode is None and time.monotonic() < end:  # another thread has reaped it, and stores the code
            time.sleep(0.01)
        return process.exitcode
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(seconds)
    return None

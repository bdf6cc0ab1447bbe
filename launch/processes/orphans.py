"""No process outlives the one that started it, however that one ended.

`paddle.distributed.launch` leaves its workers running, each in a session of its own, when it is killed; GNU make leaves
its command running when it is killed, and waits for it, silently, after SIGHUP and SIGINT. Three things mend that:
a process requests a signal from the kernel for the end of its parent, the supervisor of a launcher becomes the parent
of every orphan below it, and it looks at the signals that make has received. Only Linux has these means; elsewhere the
functions do nothing.

Signals that arrive meanwhile are recorded for a loop to look at, instead of running code at any moment.
"""

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ASK_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def recorded_signals() -> Iterator[list[int]]:
    """Record SIGINT, SIGTERM and SIGHUP in the list yielded, and do nothing else. For the main thread.

    For the main thread.

    SIGHUP stays ignored where it is: that is what nohup is for.
    """
    received: list[int] = []

    def record(number, frame):
        received.append(number)

    recorded = [number for number in ASK_TO_END if number != signal.SIGHUP or not hangup_is_ignored()]
    previous = {number: signal.signal(number, record) for number in recorded}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def hangup_is_ignored() -> bool:
    """Return whether SIGHUP is ignored."""
    return signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


# From <sys/prctl.h>.
PR_SET_PDEATHSIG = 1
PR_GET_PDEATHSIG = 2
PR_SET_CHILD_SUBREAPER = 36

MAKE = "LAUNCH_MAKE"  # set by the Makefile: make's process id
POLL_SECONDS = 0.1


def die_with_parent() -> None:
    """Have the kernel send this rank SIGTERM when the process that started it ends: while it trains, it saves first.

    A rank that hangs then is ended by launch/watch.py. Does nothing in a forked rank, which ends at once
    (fork.py), and in a process that is no rank, that is where no launcher has set PADDLE_TRAINER_ID: a training started
    by hand must survive the end of its shell.
    """
    requested = ctypes.c_int()  # what the kernel sends this process already
    _prctl(PR_GET_PDEATHSIG, ctypes.addressof(requested))
    if "PADDLE_TRAINER_ID" in os.environ and not requested.value:
        signal_at_parents_end(signal.SIGTERM)


def end_with_make() -> None:
    """Have the kernel send this process SIGTERM when the make that started it ends, also by SIGKILL.

    Does nothing where another process is the parent: a command started in a shell survives the shell's end, as under
    nohup.
    """
    make = make_above()
    if make is None:
        return
    signal_at_parents_end(signal.SIGTERM)
    if os.getppid() != make:  # it ended before the request
        os.kill(os.getpid(), signal.SIGTERM)


def make_above() -> int | None:
    """Return the process id of the make that started this process; None where it was not started by make."""
    return os.getppid() if os.environ.get(MAKE) == str(os.getppid()) else None


def blocked_signals(pid: int) -> set[int]:
    """Return the signals that a process blocks; empty where they are unknown.

    GNU make handles SIGHUP and SIGINT by waiting for its commands, without passing the signal on. While it waits, the
    signal is blocked, as is any signal whose handler runs, and so its commands can see it.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return set()
    found = re.search(r"^SigBlk:\s*(\w+)", status, re.MULTILINE)
    mask = int(found[1], 16) if found else 0
    return {number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM) if mask >> (number - 1) & 1}


def signal_at_parents_end(number: int) -> None:
    """Have the kernel send this process a signal when the thread that started it ends. Survives exec."""
    _prctl(PR_SET_PDEATHSIG, number)


def be_data_worker(worker_id: int) -> None:
    """Let a process of a DataLoader end with the rank, whose lock on the output directory it shares.

    It is in a process group of its own: a signal to the rank's group is for the rank to answer. A worker that it ended
    would fail the rank before that has saved.
    """
    os.setpgid(0, 0)
    signal_at_parents_end(signal.SIGKILL)


def run_child(command: list[str], environment: Mapping[str, str] | None = None, folder: Path | None = None) -> int:
    """Run a command to its end with its output on the terminal; the exit code, as Popen has it.

    It gets SIGTERM when this process gets a signal to end, or is killed; this process waits for it, so that a training
    can save. Ctrl-C reaches both by the terminal. For the main thread.

    Raises:
        KeyboardInterrupt: Or SystemExit after SIGTERM or SIGHUP, once the command has ended.
    """
    with recorded_signals() as signals:
        child = subprocess.Popen(
            command, env=environment, cwd=folder, preexec_fn=lambda: signal_at_parents_end(signal.SIGTERM)
        )
        received = None
        while child.poll() is None:
            time.sleep(POLL_SECONDS)
            while signals:
                received = signals.pop(0)
                if received != signal.SIGINT:
                    child.terminate()
    if received == signal.SIGINT:
        raise KeyboardInterrupt
    if received is not None:
        sys.exit(128 + received)
    return child.returncode


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")

"""No process outlives the one that started it, however that one ended.

`paddle.distributed.launch` leaves its workers running, each in a session of its own, when it is killed. Two
calls of the kernel mend that: a process asks to be ended with its parent, and whoever supervises a launcher
becomes the new parent of every orphan below it, so that it can find and end them. Elsewhere than on Linux
neither exists, and the functions do nothing.
"""

import ctypes
import os
import signal
import sys

# From <sys/prctl.h>.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def die_with_parent() -> None:
    """Have the kernel kill this rank when the process that started it ends.

    Does nothing in a process that is no rank, that is where no launcher has set PADDLE_TRAINER_ID: a training
    started by hand must survive the end of its shell.
    """
    if "PADDLE_TRAINER_ID" in os.environ:
        signal_at_parents_end(signal.SIGKILL)


def signal_at_parents_end(number: int) -> None:
    """Have the kernel send this process a signal when the process that started it ends."""
    _prctl(PR_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")

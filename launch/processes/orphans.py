"""No process outlives the one that started it, however that one ended (Linux).

`paddle.distributed.launch` leaves its workers running, each in a session of its own, when it is killed. Two
calls of the kernel mend that: a rank asks to die with its parent, and whoever supervises a launcher becomes
the new parent of every orphan below it, so that it can find and end them.
"""

import ctypes
import os
import signal

# From <sys/prctl.h>.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def die_with_parent() -> None:
    """Have the kernel kill this process when the process that started it ends.

    Only for a rank, that is where the launcher has set PADDLE_TRAINER_ID: a training started by hand without
    a launcher must survive the end of its shell.
    """
    if "PADDLE_TRAINER_ID" in os.environ:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")

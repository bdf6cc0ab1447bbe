"""One run in an output directory at a time. No Paddle.

Rank 0 holds OUTPUT/run.lock while it trains. What starts the ranks, a recipe or a rehearsal, holds the directory itself
from before it touches anything in it: the ranks take many seconds to get to their lock.

A start locks the directory, which leaves no file behind. A file system like NFS may refuse that with EBADF, because an
exclusive lock needs a file that is open for writing there: then the start holds OUTPUT/start.lock, which stays.

The kernel keeps who holds what, and lets go at the holder's end, however it ends. The process id that is written into
run.lock is only told: that another process has the same one by now means nothing.
"""

import errno
import fcntl
import os
import time
from pathlib import Path

from launch.errors import UserError

LOCK, START_LOCK = "run.lock", "start.lock"
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)  # the last by Lustre mounted without flock
TRIES, SECONDS_BETWEEN_TRIES = 5, 0.02  # another start that looks who is here holds the lock for a moment


def lock_output(output: Path | str) -> int:
    """Hold the directory until this process ends, however it ends; the descriptor that holds it.

    Raises UserError where another run holds it. On a file system without locks nothing is held.
    """
    path = Path(output) / LOCK
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    if not _lock(descriptor):
        holder = _name_in(descriptor)
        os.close(descriptor)
        raise UserError(f"{output} {_in_use(holder)}")
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
    return descriptor


def lock_start(output: Path | str) -> int:
    """Make the directory and hold it while its ranks are started and run; the descriptor. As lock_output."""
    Path(output).mkdir(parents=True, exist_ok=True)
    descriptor = os.open(output, os.O_RDONLY)
    try:
        is_ours = _lock(descriptor)
    except OSError as error:
        os.close(descriptor)
        if error.errno != errno.EBADF:
            raise
        descriptor = os.open(Path(output) / START_LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        is_ours = _lock(descriptor)
    if not is_ours:
        os.close(descriptor)
        raise UserError(f"{output} {_in_use(user_of(output) or 'unknown')}")
    return descriptor


def user_of(output: Path | str) -> str | None:
    """Which run holds a directory; None where none does. Nothing is held or changed."""
    for path in (Path(output) / LOCK, Path(output) / START_LOCK, Path(output)):
        if not path.exists():
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            if not _lock(descriptor, fcntl.LOCK_SH):  # all that a descriptor for reading may take on NFS
                return _name_in(descriptor) if path.name == LOCK else "one that starts"
        finally:
            os.close(descriptor)
    return None


def _in_use(holder: str) -> str:
    return f"is in use by another run ({holder}): end it, or give this one another --output_dir."


def _name_in(descriptor: int) -> str:
    return os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "unknown"


def _lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Whether it is ours now; so it is where the file system has no locks. Raises OSError for any other fault."""
    for _ in range(TRIES):
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(SECONDS_BETWEEN_TRIES)
        except OSError as error:
            if error.errno in NO_LOCKS:
                return True
            raise
        else:
            return True
    return False

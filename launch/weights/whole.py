"""A directory that is there when it is whole, or not at all."""

import errno
import fcntl
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launch.errors import UserError


@contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """Yield a directory to fill, which takes the name `target` at the end; an exception leaves nothing behind.

    Nor does SIGTERM, or the end of the terminal, where this process has no other answer to them.
    Leftovers of a killed process with the same target are removed first.

    Raises:
        UserError: If target is there already or cannot be written.
    """
    if target.exists():
        raise UserError(f"{target}: is there already. Remove it, or name another directory.")
    unfinished, lock = None, None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        prefix = f".{target.name}.unfinished-"  # beside it: one rename away
        _remove_abandoned(target.parent, prefix)
        unfinished = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
        lock = lock_directory(unfinished)
        with _ended_by_exception():
            yield unfinished
            unfinished.chmod(0o755)  # a temporary directory is its owner's alone
            unfinished.rename(target)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise UserError(f"{target}: another command has written it meanwhile. Name another directory.") from None
        reason = error.strerror or f"no room left ({error})"  # NumPy names no number where its write was cut short
        if error.filename and unfinished and not str(error.filename).startswith(str(unfinished)):
            reason += f": {error.filename}"
        raise UserError(f"{target}: cannot be written: {reason}.") from error
    finally:
        if unfinished:
            shutil.rmtree(unfinished, ignore_errors=True)
        if lock is not None:
            os.close(lock)


@contextmanager
def _ended_by_exception() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise SystemExit where they would end this process at once."""

    def end(number, frame):
        sys.exit(128 + number)

    signals = (signal.SIGTERM, signal.SIGHUP) if threading.current_thread() is threading.main_thread() else ()
    taken = [number for number in signals if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove directories that no living process fills."""
    for path in parent.iterdir():
        if re.fullmatch(re.escape(prefix) + r"[a-z0-9_]{8}", path.name) and path.is_dir():
            lock = lock_directory(path)
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def lock_directory(directory: Path) -> int | None:
    """Lock a directory until the result is closed, or the process ends.

    None where another holds it, or it cannot be locked.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor

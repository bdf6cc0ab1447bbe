"""One run in an output directory at a time. No Paddle."""

import fcntl
import os
from pathlib import Path

from launch.errors import UserError

LOCK = "run.lock"


def lock_output(output: Path | str) -> int:
    """Hold the directory until this process ends, however it ends; the descriptor that holds it.

    Raises UserError where another run holds it. On a file system without locks nothing is held.
    """
    path = Path(output) / LOCK
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 200).decode(errors="replace").strip()
        os.close(descriptor)
        raise UserError(
            f"{output} is in use by another run ({holder or 'unknown'}): end it, or give this one another --output_dir."
        ) from None
    except OSError:
        return descriptor
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
    return descriptor

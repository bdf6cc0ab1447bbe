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
import re
import shutil
import time
from pathlib import Path

from launch.checkpoint.manifest import (
    ADAPTER_FOUND_BY,
    CHECKPOINT,
    MODEL_FOUND_BY,
    PARTIAL,
    PARTIAL_MODEL,
    checkpoints,
    first_fault,
)
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


# ---- what a kill left


LEFT_BY_A_KILL = re.compile(rf"{PARTIAL}checkpoint-[0-9]+|{PARTIAL_MODEL}|.+\.partial-[0-9a-f]{{12}}")
FILES = (*MODEL_FOUND_BY, *ADAPTER_FOUND_BY, "config.json", "lora_config.json", "train_log.jsonl", "run_summary.json")


def move_aside(checkpoint: Path, prefix: str) -> Path:
    """Rename X to PREFIX-X, or with the first number behind it that is free; the new path."""
    aside, number = checkpoint.with_name(prefix + checkpoint.name), 1
    while aside.exists():
        number += 1
        aside = checkpoint.with_name(f"{prefix}{checkpoint.name}.{number}")
    os.rename(checkpoint, aside)
    return aside


def remove_partial(output: Path) -> None:
    """Remove what a kill left of saves and of files written aside: it was never whole. For who holds the output."""
    for path in left_by_a_kill(output):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def left_by_a_kill(output: Path) -> list[Path]:
    """What is removed when a run starts. Files by the names of our directories are no saves of ours."""
    found = [path for path in Path(output).glob("*") if LEFT_BY_A_KILL.fullmatch(path.name)]
    return [path for path in found if path not in in_the_way(output)]


def in_the_way(output: Path) -> list[Path]:
    """Files where the run makes directories, and directories where it writes files."""
    found = []
    for path in sorted(Path(output).glob("*")):
        is_checkpoint = CHECKPOINT.fullmatch(path.name.removeprefix(PARTIAL))
        if (
            path.is_file()
            and not path.is_symlink()
            and (is_checkpoint or path.name == PARTIAL_MODEL)
            or path.is_dir()
            and path.name in FILES
        ):
            found.append(path)
    return found


# ---- the checkpoint that a run continues, by its flags alone


AUTO, NONE = "auto", "none"  # of --resume_from_checkpoint, beside a path


def newest_whole(output: str | Path) -> Path | None:
    """The newest checkpoint of an output directory whose files have the sizes of its manifest."""
    return next((one for one in checkpoints(output) if first_fault(one, hashes=False) is None), None)


def continued(values) -> Path | None:
    """The checkpoint whose weights a run takes; None where it starts without. values: the flags, as attributes.

    A named one that is not whole counts as none: the check of the continuation tells it.
    """
    wanted = values.resume_from_checkpoint or NONE
    if not values.do_train or wanted == NONE or (wanted == AUTO and values.overwrite_output_dir):
        return None
    if wanted == AUTO:
        return newest_whole(values.output_dir) if values.output_dir else None
    return Path(wanted) if first_fault(Path(wanted), hashes=False) is None else None

"""A run's output directory: one run at a time, what a killed run left. No Paddle.

Rank 0 locks OUTPUT/run.lock while it trains. The process that starts the ranks, a recipe or a rehearsal, locks the
directory itself before it changes anything there, because the ranks take many seconds to reach their own lock.

Locking the directory leaves no file behind. A file system like NFS may refuse it with EBADF, because an exclusive lock
needs a file that is open for writing there. Then the start locks OUTPUT/start.lock, which stays.

The kernel releases a lock when its process ends, however it ends. The process id in run.lock is for messages only.
"""

import errno
import fcntl
import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

from launch.checkpoint.manifest import (
    ADAPTER_FOUND_BY,
    CHECKPOINT,
    MODEL_FOUND_BY,
    PARTIAL,
    PARTIAL_MODEL,
)
from launch.errors import UserError

LOCK, START_LOCK = "run.lock", "start.lock"
OPEN_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
SAVE_NOW = "save-now"  # a file that asks the run for a checkpoint after its current step; the run removes it
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)  # the last by Lustre mounted without flock
TRIES, SECONDS_BETWEEN_TRIES = 5, 0.02  # `active_run` of another process takes the lock for a moment
OUTPUTS = Path("build/outputs.txt")  # one a line, where commands are started


def lock_output(output: Path | str) -> int:
    """Lock the directory for training until this process ends. Returns the file descriptor of the lock.

    A file system without locks takes none.

    Raises:
        UserError: If another run has the lock.
    """
    path = Path(output) / LOCK
    descriptor = os.open(path, OPEN_LOCK, 0o644)
    if not _lock(descriptor):
        run = _run_named_in(descriptor)
        os.close(descriptor)
        raise _in_use(output, run)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
    return descriptor


def lock_start(output: Path | str) -> int:
    """Create the directory and lock it for the process that starts the ranks; otherwise as lock_output."""
    Path(output).mkdir(parents=True, exist_ok=True)
    descriptor = os.open(output, os.O_RDONLY)
    try:
        locked = _lock(descriptor)
    except OSError as error:
        os.close(descriptor)
        if error.errno != errno.EBADF:
            raise
        descriptor = os.open(Path(output) / START_LOCK, OPEN_LOCK, 0o644)
        locked = _lock(descriptor)
    if not locked:
        os.close(descriptor)
        raise _in_use(output, active_run(output) or "unknown")
    return descriptor


def move_checkpoint(checkpoint: Path, place: Path) -> None:
    """Give a checkpoint another path. What a link points to, such as the checkpoint of another run, stays there."""
    if checkpoint.is_symlink():
        place.symlink_to(checkpoint.resolve())
        checkpoint.unlink()
    else:
        os.rename(checkpoint, place)


def note_output(output: Path | str) -> None:
    """Remember a folder into which a recipe trains, so that the studio shows the run wherever it is."""
    path = os.path.abspath(output)
    if path in noted_outputs() or "\n" in path:
        return
    with suppress(OSError):
        OUTPUTS.parent.mkdir(exist_ok=True)
        with open(OUTPUTS, "a", encoding="utf-8") as file:
            file.write(f"{path}\n")


def noted_outputs() -> list[str]:
    """Return the existing folders into which recipes that were started here have trained."""
    try:
        lines = OUTPUTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [line for line in lines if Path(line).is_dir()]


def active_run(output: Path | str) -> str | None:
    """Return the run that has locked a directory; None where there is none. It locks and changes nothing."""
    for path in (Path(output) / LOCK, Path(output) / START_LOCK, Path(output)):
        if not path.exists() or _blocks(path):
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            if not _lock(descriptor, fcntl.LOCK_SH):  # all that a descriptor for reading may take on NFS
                return _run_named_in(descriptor) if path.name == LOCK else "one that starts"
        finally:
            os.close(descriptor)
    return None


def _in_use(output: Path | str, run: str) -> UserError:
    return UserError(f"{output} is in use by another run ({run}): end it, or give this one another --output_dir.")


def _run_named_in(descriptor: int) -> str:
    return os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "unknown"


def _lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Return whether this process has the lock now, or the file system has no locks.

    Raises OSError for other faults.
    """
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


# ---- what a killed run left


LEFT_BY_A_KILL = re.compile(rf"{PARTIAL}checkpoint-[0-9]+|{PARTIAL_MODEL}|.+\.partial-[0-9a-f]{{12}}")
FILES = (*MODEL_FOUND_BY, *ADAPTER_FOUND_BY, "config.json", "lora_config.json", "train_log.jsonl", "run_summary.json")


def move_aside(checkpoint: Path, prefix: str) -> Path:
    """Rename X to PREFIX-X, with a number behind it where that is taken. Returns the new path."""
    aside, number = checkpoint.with_name(prefix + checkpoint.name), 1
    while aside.exists():
        number += 1
        aside = checkpoint.with_name(f"{prefix}{checkpoint.name}.{number}")
    os.rename(checkpoint, aside)
    return aside


def remove_partial(output: Path) -> None:
    """Remove unfinished saves and files that a killed run left. The caller has locked the output."""
    for path in left_by_a_kill(output):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def left_by_a_kill(output: Path) -> list[Path]:
    """Return the leftovers of a killed run, which a run removes at its start.

    A file with a directory's name is not ours.
    """
    found = [path for path in Path(output).glob("*") if LEFT_BY_A_KILL.fullmatch(path.name)]
    return [path for path in found if path not in in_the_way(output)]


def in_the_way(output: Path) -> list[Path]:
    """Return what is no directory where the run creates one, and no regular file where it writes one."""
    return [path for path in sorted(Path(output).glob("*")) if _blocks(path)]


def _blocks(path: Path) -> bool:
    if path.name in (LOCK, START_LOCK):  # what a link points to would be overwritten
        return path.is_symlink() or not path.is_file()
    if path.name in FILES:
        return path.exists() and not path.is_file()
    if path.is_symlink():
        return bool(CHECKPOINT.fullmatch(path.name)) and not path.exists()
    is_ours = CHECKPOINT.fullmatch(path.name.removeprefix(PARTIAL)) or path.name == PARTIAL_MODEL
    return bool(is_ours) and not path.is_dir()

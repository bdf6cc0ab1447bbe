"""Files that are whole or absent: written aside, flushed to disk, renamed."""

import errno
import fcntl
import os
import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from data_tools.formats.errors import DataError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

PACKED = (".gz", ".zst", ".bz2", ".xz", ".zip")


@contextmanager
def written_aside(path: str | Path) -> Iterator[BinaryIO]:
    """Open a binary file that takes the name `path` only when the block ends without an exception.

    Several processes may write the same `path` at once: each writes its own `path.partial-*`, the last rename stays,
    and a reader sees one whole version or another. Missing folders are made. Partial files that a killed writer of the
    same path has left are removed.

    Raises:
        DataError: If nothing can be written.
    """
    path = Path(path).resolve() if Path(path).is_symlink() else Path(path)  # a link goes on to name the file
    # Before the work, which may be long.
    if path.is_dir():
        raise DataError(f"cannot write {path}: it is a folder. Name a file.")
    if path.exists() and not path.is_file():
        raise DataError(f"cannot write {path}: it is a pipe or a device. Name a file.")
    if path.suffix in PACKED:
        raise DataError(f"cannot write {path}: files are written unpacked. Name one without {path.suffix}.")
    aside = path.with_name(f"{path.name}.partial-{uuid.uuid4().hex[:12]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path)
        file = _open_locked(aside)
    except OSError as error:
        if error.errno in DISK_FULL:
            error.filename = str(path)
            raise
        raise DataError(f"cannot write {path}: {error.strerror}. Name a folder you may write to.") from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is None:  # a write says no name, of a full disk
            error.filename = str(path)
        aside.unlink(missing_ok=True)
        raise


def check_not_input(path: str | Path, inputs: Iterable[str]) -> None:
    """Raise DataError where a file to be written is one of the inputs, by whatever name."""
    for file in map(Path, inputs):
        if file.exists() and Path(path).exists() and file.samefile(path):
            raise DataError(f"cannot write {path}: it is {file} of --input, which it would replace. Name another.")


def _open_locked(aside: Path) -> BinaryIO:
    """Return a new file under a lock, which ends with its writer, so that others see that somebody is writing."""
    while True:
        file = open(aside, "wb")
        with suppress(OSError):  # a file system without locks: then nobody removes anything either
            fcntl.flock(file, fcntl.LOCK_EX)
        if aside.exists():
            return file
        file.close()  # removed between the two calls, as abandoned


def _remove_abandoned(path: Path) -> None:
    """Remove what writers that were killed have left of `path`: nobody holds the lock of it."""
    pattern = re.compile(rf"{re.escape(path.name)}\.partial-[0-9a-f]{{12}}")
    for aside in [entry for entry in path.parent.iterdir() if pattern.fullmatch(entry.name)]:
        with suppress(OSError), open(aside, "rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            aside.unlink()


def open_alone(path: Path) -> FileIO:
    """Return the file, opened to append and locked by this process until it is closed.

    Raises:
        DataError: If another process has locked it.
    """
    while True:
        file = open(path, "ab+", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise DataError(f"{path}: another process is writing it. Wait for it, or name another output.") from None
        except OSError:
            pass  # a file system without locks
        if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return file
        file.close()  # renamed meanwhile, by a process that finished it


def write_all(file: FileIO, content) -> None:
    """Write all of the content: one call of write() may write less, on a disk that fills up."""
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


@contextmanager
def one_at_a_time(folder: str | Path) -> Iterator[None]:
    """Let one process of this machine at a time into the block, among processes that give the same folder.

    The folder is made where it is missing. On a file system without locks they go through together.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise DataError(f"cannot use the folder {folder}: {error.strerror}. Name one you may write to.") from None
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # gives the lock back, as the end of a process does

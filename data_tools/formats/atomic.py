"""Files that are whole or absent: written aside, flushed to disk, renamed."""

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


@contextmanager
def written_aside(path: str | Path) -> Iterator[BinaryIO]:
    """A binary file for writing that takes the name `path` only when the block ends without an exception.

    Several processes may write the same `path` at once: each writes its own `path.partial-*`, the last rename
    stays, and a reader sees one whole version or another. Missing folders are made. What a kill has left of an
    earlier write of the same path is removed.

    Raises DataError where nothing can be written.
    """
    path = Path(path)
    if path.is_dir():
        raise DataError(f"cannot write {path}: it is a folder. Name a file.")  # before the work, which may be long
    aside = path.with_name(f"{path.name}.partial-{uuid.uuid4().hex[:12]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path)
        file = _open_locked(aside)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}. Name a folder you may write to.") from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def check_not_input(path: str | Path, inputs: Iterable[str]) -> None:
    """Raises DataError where a file that is to be written is one of those that are read, by whatever name."""
    for file in map(Path, inputs):
        if file.exists() and Path(path).exists() and file.samefile(path):
            raise DataError(f"cannot write {path}: it is {file} of --input, which it would replace. Name another.")


def _open_locked(aside: Path) -> BinaryIO:
    """A new file under a lock, which ends with its writer: by that others know that somebody is at work on it."""
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
    """The file, opened to append and locked by this process until it is closed. Raises DataError when another process
    has locked it."""
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
    """One call of write() may write less, on a disk that fills up."""
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


@contextmanager
def one_at_a_time(folder: str | Path) -> Iterator[None]:
    """Processes of this machine that give the same folder go through the block one after another.

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

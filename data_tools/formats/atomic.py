"""Files that are whole or absent: written aside, flushed to disk, renamed."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from data_tools.formats.errors import DataError


@contextmanager
def written_aside(path: str | Path) -> Iterator[BinaryIO]:
    """A binary file for writing that takes the name `path` only when the block ends without an exception.

    Several processes may write the same `path` at once: each writes its own `path.partial-*`, the last rename
    stays, and a reader sees one whole version or another. Missing folders are made.

    Raises DataError where nothing can be written.
    """
    path = Path(path)
    aside = path.with_name(f"{path.name}.partial-{uuid.uuid4().hex[:12]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(aside, "wb")
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

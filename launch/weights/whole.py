"""A directory that is there when it is whole, or not at all."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launch.errors import UserError


@contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """Yields a directory to fill, which takes the name `target` at the end; anything raised leaves nothing behind.

    Raises UserError where target is there already or cannot be written.
    """
    if target.exists():
        raise UserError(f"{target}: is there already. Remove it, or name another directory.")
    unfinished = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))  # beside it: one rename away
        yield unfinished
        unfinished.chmod(0o755)  # a temporary directory is its owner's alone
        unfinished.rename(target)
    except OSError as error:
        raise UserError(f"{target}: cannot be written: {error.strerror or error}.") from error
    finally:
        if unfinished:
            shutil.rmtree(unfinished, ignore_errors=True)

"""Log files of ranks, named as paddle.distributed.launch names them."""

import os
from pathlib import Path
from typing import TextIO

LAST_LINES = 20
LAST_BYTES = 16 * 1024


def log_path(log_dir: Path, rank: int) -> Path:
    return Path(log_dir) / f"workerlog.{rank}"


def last_lines(path: Path, count: int = LAST_LINES) -> str:
    """The last `count` lines of a log, "" when there is none."""
    try:
        with open(path, "rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - LAST_BYTES))
            text = log.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.rstrip().splitlines()[-count:])


def first_to_fail(log_dir: Path, ranks: list[int]) -> int:
    """Of ranks that failed within one look, the one that failed first.

    A rank whose peer has died fails on the lost connection within milliseconds, and its complaint hides the
    cause. The rank that failed first also wrote to its log for the last time first.
    """
    return min(ranks, key=lambda rank: log_path(log_dir, rank).stat().st_mtime_ns)


class Follower:
    """Copies what is appended to a file to a stream, each time `copy` is called."""

    def __init__(self, path: Path, stream: TextIO):
        self.path = path
        self.stream = stream
        self.offset = 0

    def copy(self) -> None:
        if not self.path.exists():
            return
        with open(self.path, "rb") as log:
            log.seek(self.offset)
            new = log.read()
        if new:
            self.offset += len(new)
            self.stream.write(new.decode("utf-8", errors="replace"))
            self.stream.flush()

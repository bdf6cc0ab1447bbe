"""Log files of ranks, named as paddle.distributed.launch names them."""

import os
import time
from pathlib import Path
from typing import TextIO

LAST_LINES = 20
LAST_BYTES = 16 * 1024
PYTHON_ERROR = "Traceback (most recent call last)"
SECONDS_HELD = 10.0  # longer than a launcher takes to notice a rank's end


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
    """Copies what is appended to a file to a stream, each time `copy` is called.

    A traceback and what comes after it are held for a while: a lost connection is told at length, and its cause may be
    another rank's end, which is known a moment later.
    """

    def __init__(self, path: Path, stream: TextIO):
        self.path = path
        self.stream = stream
        self.offset = 0
        self.held, self.held_since = "", 0.0
        self.is_unread = False  # whether the stream's reader, or the terminal, is gone

    def copy(self) -> None:
        new = self._new()
        if self.held:
            self.held += new
        else:
            before, error, after = new.partition(PYTHON_ERROR)
            self._show(before)
            self.held, self.held_since = error + after, time.monotonic()
        if time.monotonic() - self.held_since > SECONDS_HELD:
            self.release()

    def release(self) -> None:
        """Show what is held."""
        held, self.held = self.held, ""
        self._show(held)

    def _new(self) -> str:
        if not self.path.exists():
            return ""
        with open(self.path, "rb") as log:
            log.seek(self.offset)
            new = log.read()
        self.offset += len(new)
        return new.decode("utf-8", errors="replace")

    def _show(self, text: str) -> None:
        if not text or self.is_unread:
            return
        try:
            self.stream.write(text)
            self.stream.flush()
        except OSError:  # EPIPE of a pipe, EIO of a terminal
            self.is_unread = True

"""How far a command is: a bar on a terminal; elsewhere (a log file) a line every ten seconds. On stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

SECONDS_BETWEEN_LINES = 10


@contextmanager
def progress(verb: str, total_bytes: int, done_bytes: int = 0) -> Iterator[Callable]:
    """Yields `advance(bytes, documents=0, tokens=0)`: shows these so far a second, and the time left.

    total_bytes: 0 where it is not known. done_bytes: by an earlier run.
    """
    pace = Pace(total_bytes, done_bytes)
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _in_lines(verb, pace)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TextColumn("{task.fields[pace]}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(verb, total=total_bytes or None, completed=done_bytes, pace="")

        def advance(size: int, documents: int = 0, tokens: int = 0) -> None:
            pace.add(size, documents, tokens)
            bar.update(task, completed=pace.done, pace=pace.text())

        yield advance


class Pace:
    """Bytes, documents and tokens a second since the start."""

    def __init__(self, total_bytes: int, done_bytes: int = 0):
        self.total, self.before = total_bytes, done_bytes
        self.size = self.documents = self.tokens = 0
        self.start = time.monotonic()

    def add(self, size: int, documents: int, tokens: int) -> None:
        self.size += size
        self.documents += documents
        self.tokens += tokens

    @property
    def done(self) -> int:
        return self.before + self.size

    def text(self) -> str:
        """Such as "12.9 MB/s, 5,412 documents/s, 3,241,000 tokens/s, 4 min left"."""
        seconds = max(time.monotonic() - self.start, 1e-3)
        parts = [f"{self.size / seconds / 1e6:.1f} MB/s"]
        parts += [f"{self.documents / seconds:,.0f} documents/s"] if self.documents else []
        parts += [f"{self.tokens / seconds:,.0f} tokens/s"] if self.tokens else []
        if self.total and self.size:
            left = (self.total - self.done) / self.size * seconds
            parts.append(f"{left / 60:.0f} min left" if left >= 90 else f"{left:.0f} s left")
        return ", ".join(parts)


def _in_lines(verb: str, pace: Pace) -> Callable:
    last_line = time.monotonic()

    def advance(size: int, documents: int = 0, tokens: int = 0) -> None:
        nonlocal last_line
        pace.add(size, documents, tokens)
        if time.monotonic() - last_line >= SECONDS_BETWEEN_LINES:
            last_line = time.monotonic()
            total = f" of {pace.total / 1e6:,.0f}" if pace.total else ""
            print(f"{verb}: {pace.done / 1e6:,.0f}{total} MB, {pace.text()}", file=sys.stderr, flush=True)

    return advance

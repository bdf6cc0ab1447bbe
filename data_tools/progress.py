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
    """Yield `advance(bytes, documents=0, tokens=0)`, which shows the rates and the time left.

    total_bytes: 0 where unknown. done_bytes: done by an earlier run.
    """
    pace = ReadingPace(total_bytes, done_bytes)
    console = Console(stderr=True)
    if not _has_bars(console):
        yield _in_lines(verb, pace)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TextColumn("{task.fields[pace]}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(verb, total=total_bytes or None, completed=done_bytes, pace="")

        def advance(size: int, documents: int = 0, tokens: int = 0) -> None:
            pace.add(size, documents, tokens)
            bar.update(task, completed=pace.done, pace=pace.text())

        yield advance


@contextmanager
def counted(verb: str, total: int, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Yield `reach(done)`, which shows how many of `total` are done, and the time left. shown: False shows nothing.

    The pace is measured from the first call on: what comes before was done by an earlier start, or is made only once.
    """
    console = Console(stderr=True)
    if _has_bars(console) or not shown:
        with Progress(console=console, transient=True, disable=not shown) as bar:
            task = bar.add_task(verb, total=total)
            yield lambda done: bar.update(task, completed=done)
        return
    show, first = _now_and_then(), None

    def reach(done: int) -> None:
        nonlocal first
        now = time.monotonic()
        first = first or (done, now)
        moved = done - first[0]
        left = f", {time_left((total - done) * (now - first[1]) / moved)}" if moved else ""
        show(lambda: f"{verb}: {done:,} of {total:,}{left}")

    yield reach


def _has_bars(console: Console) -> bool:
    """Return whether a console is a terminal that can draw over its own output."""
    return console.is_terminal and not console.is_dumb_terminal


def time_left(seconds: float) -> str:
    """Return the time left in seconds or minutes."""
    return f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"


class ReadingPace:
    """Bytes, documents and tokens a second since the start."""

    def __init__(self, total_bytes: int, done_bytes: int = 0):
        self.total, self.before = total_bytes, done_bytes
        self.size = self.documents = self.tokens = 0
        self.start = time.monotonic()

    def add(self, size: int, documents: int, tokens: int) -> None:
        """Count a finished piece of work."""
        self.size += size
        self.documents += documents
        self.tokens += tokens

    @property
    def done(self) -> int:
        """Bytes done, earlier runs included."""
        return self.before + self.size

    def text(self) -> str:
        """Return the rates, such as "12.9 MB/s, 5,412 documents/s, 3,241,000 tokens/s, 4 min left"."""
        seconds = max(time.monotonic() - self.start, 1e-3)
        parts = [f"{self.size / seconds / 1e6:.1f} MB/s"]
        parts += [f"{self.documents / seconds:,.0f} documents/s"] if self.documents else []
        parts += [f"{self.tokens / seconds:,.0f} tokens/s"] if self.tokens else []
        if self.total and self.size:
            parts.append(time_left((self.total - self.done) / self.size * seconds))
        return ", ".join(parts)

    def line(self, verb: str) -> str:
        """Return how much is done, such as "reading: 120 of 538 MB, 12.9 MB/s, 32 s left"."""
        total = f" of {self.total / 1e6:,.0f}" if self.total else ""
        return f"{verb}: {self.done / 1e6:,.0f}{total} MB, {self.text()}"


def _in_lines(verb: str, pace: ReadingPace) -> Callable:
    show = _now_and_then()

    def advance(size: int, documents: int = 0, tokens: int = 0) -> None:
        pace.add(size, documents, tokens)
        show(lambda: pace.line(verb))

    return advance


def _now_and_then() -> Callable[[Callable[[], str]], None]:
    """Return a function that prints a line when the one before it is ten seconds old."""
    last_line = time.monotonic()

    def show(line: Callable[[], str]) -> None:
        nonlocal last_line
        if time.monotonic() - last_line >= SECONDS_BETWEEN_LINES:
            last_line = time.monotonic()
            print(line(), file=sys.stderr, flush=True)

    return show

"""What the commands of data_tools share: the parser, progress, and how a mistake of the user is shown."""

import argparse
import difflib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from data_tools.formats.errors import DataError

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130
SECONDS_BETWEEN_LINES = 10


class Parser(argparse.ArgumentParser):
    """Flags are not abbreviated; an unknown one is an error that names the nearest. `doc`: the help text."""

    def __init__(self, command: str, doc: str):
        super().__init__(
            prog=f"python -m data_tools.{command}",
            description=doc,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def parse_args(self, args=None, namespace=None) -> argparse.Namespace:
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            near = difflib.get_close_matches(unknown[0].split("=")[0], self._option_string_actions, n=1)
            self.error(f"unknown argument {unknown[0]}" + (f", did you mean {near[0]}?" if near else ""))
        return parsed

    def error(self, message: str):
        print(f"error: {message} (`{self.prog} --help` lists all)", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)


def run(main: Callable[[], None]) -> None:
    """Run a command; what the user can mend becomes one line on stderr and exit code 2."""
    try:
        main()
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)
    except OSError as error:
        print(f"error: {error.strerror}{f': {error.filename}' if error.filename else ''}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)
    except KeyboardInterrupt:
        print("interrupted: the output is not finished", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


@contextmanager
def progress(verb: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Yields `advance(bytes)`. A bar on a terminal; elsewhere (a log file) a line every ten seconds."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _PlainProgress(verb, total_bytes).advance
        return
    columns = (TextColumn(verb), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(verb, total=total_bytes)
        yield lambda size: bar.advance(task, size)


class _PlainProgress:
    def __init__(self, verb: str, total_bytes: int):
        self.verb = verb
        self.total = total_bytes
        self.done = 0
        self.last_line = time.monotonic()

    def advance(self, size: int) -> None:
        self.done += size
        if time.monotonic() - self.last_line >= SECONDS_BETWEEN_LINES:
            self.last_line = time.monotonic()
            print(
                f"{self.verb}: {self.done / 1e6:.0f} of {self.total / 1e6:.0f} MB",
                file=sys.stderr,
                flush=True,
            )

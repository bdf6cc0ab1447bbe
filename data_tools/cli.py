"""What commands share: how flags are read, and how every command ends."""

import argparse
import difflib
import errno
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from data_tools.formats.errors import DataError
from data_tools.terminal import prepare_streams, width, wrapped

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130
EXIT_NOBODY_READS = 141
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# Of a path that the user has named: it is not there, is of another kind, may not be used.
WRONG_PATH = (
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY),
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP),
)


class Help(argparse.RawDescriptionHelpFormatter):
    """Wraps the paragraphs of a docstring; its indented lines, which are commands, stay as they are."""

    def __init__(self, prog: str):
        super().__init__(prog, width=width())

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.strip().split("\n\n")
        return "\n\n".join(one if "\n " in f"\n{one}" else wrapped(one) for one in paragraphs)


class Parser(argparse.ArgumentParser):
    """Flags are not abbreviated; an unknown one is an error that names the nearest.

    prog: the command as a user starts it. doc: the help text.
    """

    def __init__(self, prog: str, doc: str):
        super().__init__(prog=prog, description=doc, formatter_class=Help, allow_abbrev=False)

    def parse_args(self, args=None, namespace=None) -> argparse.Namespace:
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            near = difflib.get_close_matches(unknown[0].split("=")[0], self._option_string_actions, n=1)
            self.error(f"unknown argument {unknown[0]}" + (f", did you mean {near[0]}?" if near else ""))
        return parsed

    def error(self, message: str):
        print(f"error: {message} (`{self.prog} --help` lists all)", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)


def above_zero(text: str) -> int:
    """A type of flags, as those below."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number above 0")
    return int(text)


def not_negative(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number, 0 or more")
    return int(text)


def port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a port, 0 to 65535")
    return int(text)


def amount(text: str) -> float:
    number = _number(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number above 0")
    return number


def share(text: str) -> float:
    number = _number(text)
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number from 0 to 1")
    return number


def percent(text: str) -> float:
    number = _number(text)
    if not 0 <= number <= 100:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number from 0 to 100")
    return number


def _number(text: str) -> float:
    """NaN, which is in no range, for what is no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def guarded(main: Callable[[], int | None], mistakes: tuple[type[Exception], ...] = (DataError,)) -> int:
    """Run a command; the exit code: what it returned, 2 for a mistake of the user, told in a line, 130 after Ctrl-C."""
    prepare_streams()
    with _noted_interrupts() as interrupts:
        try:
            return _ended(main, mistakes)
        except (KeyboardInterrupt, Exception) as error:
            if not interrupts and not isinstance(error, KeyboardInterrupt):
                raise
            return _told("\ninterrupted" if sys.stderr.isatty() else "interrupted", EXIT_INTERRUPTED)  # behind ^C


@contextmanager
def _noted_interrupts() -> Iterator[list[int]]:
    """Ctrl-C raises KeyboardInterrupt, as ever, and is noted: a Paddle that is being imported makes an ImportError of
    it. Where Ctrl-C does something else, or nothing, it goes on doing so."""
    noted: list[int] = []

    def interrupt(number, frame):
        noted.append(number)
        raise KeyboardInterrupt

    previous = signal.getsignal(signal.SIGINT)
    if previous is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, previous)


def _ended(main: Callable[[], int | None], mistakes: tuple[type[Exception], ...]) -> int:
    try:
        try:
            return main() or 0
        finally:
            sys.stdout.flush()  # here: when Python ends, a pipe that nobody reads any more would be told at length
    except mistakes as error:
        return _told(f"error: {error}", EXIT_USER_ERROR)
    except BrokenPipeError:  # whoever read our output, `head` perhaps, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to flush into the pipe
        return EXIT_NOBODY_READS
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        if error.errno in DISK_FULL:
            return _told(f"error: {error.strerror}{where}. Free some and start again.", EXIT_USER_ERROR)
        if error.errno in WRONG_PATH and where:
            return _told(f"error: {error.strerror}{where}", EXIT_USER_ERROR)
        raise


def _told(line: str, exit_code: int) -> int:
    print(line, file=sys.stderr, flush=True)  # of a rank: into its log; rank 0's is on the terminal
    return exit_code


def run(main: Callable[[], int | None]) -> None:
    """Run a command of data_tools to the end of this process."""
    sys.exit(guarded(main))

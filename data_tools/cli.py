"""What commands share: how flags are read, and how every command ends."""

import argparse
import difflib
import errno
import itertools
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from data_tools.formats.atomic import DISK_FULL
from data_tools.formats.errors import DataError
from data_tools.formats.json_files import shown
from data_tools.language import localized
from data_tools.terminal import prepare_streams, width, wrapped

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130
DIGITS = 15  # of a number, at most
LONGEST_LINE = 10_000  # characters of a message, which may hold a text of a file
MOST_CARDS, MOST_NODES = 1024, 16_384  # cards of a node
# What is said after Ctrl-C: of work that is recorded, and of results that are whole or absent.
GOES_ON = "the same command goes on"
BEGINS_ANEW = "nothing unfinished was left behind; the same command begins anew"
EXIT_NOBODY_READS = 141
# Errors of a path that the user has named: it is missing, is of another kind, or may not be used.
WRONG_PATH = (
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY),
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP),
)


class Help(argparse.RawDescriptionHelpFormatter):
    """Wraps the paragraphs of a docstring; its indented lines, which are commands, stay as they are."""

    def __init__(self, prog: str):
        super().__init__(prog, width=width())

    def _format_usage(self, usage, actions, groups, prefix) -> str:
        """Break a long usage below the command's name.

        argparse indents further lines by the length of the name, which leaves too little room for a long list of
        values.
        """
        text = super()._format_usage(usage, actions, groups, prefix)
        if max(map(len, text.splitlines())) <= width():
            return text
        name, self._prog = self._prog, "."
        text = super()._format_usage(usage, actions, groups, prefix)
        self._prog = name
        return text.replace(" . ", f" {name}\n         ", 1)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.strip().split("\n\n")
        return "\n\n".join(paragraph if "\n " in f"\n{paragraph}" else wrapped(paragraph) for paragraph in paragraphs)


class Parser(argparse.ArgumentParser):
    """Flags are not abbreviated; an unknown one is an error that names the nearest.

    Attributes:
        prog: The command as a user starts it.
        doc: The help text.
    """

    def __init__(self, prog: str, doc: str | None):
        super().__init__(prog=prog, description=doc, formatter_class=Help, allow_abbrev=False)

    def parse_args(self, args=None, namespace=None) -> argparse.Namespace:
        """Parse the arguments. An unknown flag is reported first, with the nearest known one."""
        arguments = sys.argv[1:] if args is None else args
        self._refuse(self._unknown_flags(arguments))  # first, or a misspelt required flag is reported as missing
        parsed, unknown = self.parse_known_args(arguments, namespace)
        self._refuse(unknown)
        return parsed

    def _unknown_flags(self, arguments: list[str]) -> list[str]:
        if any(action.nargs == argparse.REMAINDER for action in self._actions):
            return []  # the rest is for another command
        names = [word.split("=")[0] for word in itertools.takewhile(lambda word: word != "--", arguments)]
        flags = [name for name in names if name.startswith("--") and " " not in name]  # with a space: a text
        return [flag for flag in flags if flag not in self._option_string_actions]

    def _refuse(self, unknown: list[str]) -> None:
        if unknown:
            near = difflib.get_close_matches(unknown[0], self._option_string_actions, n=1)
            self.error(f"unknown argument {unknown[0]}" + (f", did you mean {near[0]}?" if near else ""))

    def error(self, message: str):
        """Print the error and where to find help, then exit."""
        sys.exit(_told(f"error: {message} (`{self.prog} --help` lists all)", EXIT_USER_ERROR))


def whole_number(text: str, least: int, most: int) -> int | None:
    """Return the number that a text is, None for another text and for one out of its range, however long it is."""
    return int(text) if text.isdecimal() and len(text) <= DIGITS and least <= int(text) <= most else None


def above_zero(text: str) -> int:
    """Parse a whole number above 0, as the `type` of a flag."""
    return _whole(text, 1, 10**DIGITS, "a whole number above 0")


def not_negative(text: str) -> int:
    """Parse a whole number of 0 or more."""
    return _whole(text, 0, 10**DIGITS, "a whole number, 0 or more")


def port(text: str) -> int:
    """Parse a port number."""
    return _whole(text, 0, 65535, "a port, 0 to 65535")


def cards(text: str) -> int:
    """Parse the number of cards of a node."""
    return _whole(text, 1, MOST_CARDS, f"a number of cards, 1 to {MOST_CARDS:,}")


def nodes(text: str) -> int:
    """Parse the number of nodes."""
    return _whole(text, 1, MOST_NODES, f"a number of nodes, 1 to {MOST_NODES:,}")


def _whole(text: str, least: int, most: int, expected: str) -> int:
    found = whole_number(text, least, most)
    if found is None:
        raise argparse.ArgumentTypeError(f"found {shown(text)!r}, expected {expected}")
    return found


def amount(text: str) -> float:
    """Parse a finite number above 0."""
    number = _number(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number above 0")
    return number


def share(text: str) -> float:
    """Parse a number from 0 to 1."""
    number = _number(text)
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number from 0 to 1")
    return number


def percent(text: str) -> float:
    """Parse a number from 0 to 100."""
    number = _number(text)
    if not 0 <= number <= 100:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number from 0 to 100")
    return number


def _number(text: str) -> float:
    """Return the number, or NaN, which lies in no range, for text that is no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def guarded(
    main: Callable[[], int | None], mistakes: tuple[type[Exception], ...] = (DataError,), interrupted: str = ""
) -> int:
    """Run a command and return its exit code: its own, 2 after a user's mistake (printed as a line), 130 after Ctrl-C.

    Args:
        interrupted: What is left after Ctrl-C and how to go on, printed with the message.
        mistakes: Exceptions that are mistakes of the user.
        main: The command.
    """
    prepare_streams()
    with _noted_interrupts() as interrupts:
        try:
            return _flushed(main)
        except (KeyboardInterrupt, Exception) as error:
            if interrupts or isinstance(error, KeyboardInterrupt):
                line = f"interrupted: {interrupted}" if interrupted else "interrupted"
                return _told(f"\n{line}" if sys.stderr.isatty() else line, EXIT_INTERRUPTED)  # behind ^C
            return _explained(error, mistakes)
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of a library in Rust, for a file that it cannot work with
                raise
            return _told(f"error: a file of the tokenizer is damaged: {error}. Copy it again.", EXIT_USER_ERROR)


@contextmanager
def _noted_interrupts() -> Iterator[list[int]]:
    """Note each Ctrl-C in the list yielded, and raise KeyboardInterrupt as usual.

    Code in C, such as sentencepiece, turns the exception into another one. Where another handler is set, it stays.
    """
    noted: list[int] = []

    def interrupt(number, frame):
        noted.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield noted
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _flushed(main: Callable[[], int | None]) -> int:
    """Flush here: at its end Python would print a traceback for a pipe that nobody reads any more."""
    try:
        return main() or 0
    finally:
        sys.stdout.flush()


def _explained(error: Exception, mistakes: tuple[type[Exception], ...]) -> int:
    """Tell a user's error; the exit code. Others are raised again."""
    if isinstance(error, mistakes):
        return _told(f"error: {error}", EXIT_USER_ERROR)
    if isinstance(error, BrokenPipeError):  # whoever read our output, `head` perhaps, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to flush into the pipe
        return EXIT_NOBODY_READS
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        if error.errno in DISK_FULL:
            return _told(f"error: {error.strerror}{where}. Free some and start again.", EXIT_USER_ERROR)
        if error.errno == errno.EFBIG:
            limit = "a file may not grow beyond what `ulimit -f` says. Raise it and start again."
            return _told(f"error: {error.strerror}{where}: {limit}", EXIT_USER_ERROR)
        if error.errno in WRONG_PATH and where:
            return _told(f"error: {error.strerror}{where}", EXIT_USER_ERROR)
    raise error


def _told(text: str, exit_code: int) -> int:
    lines = [line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} ..." for line in text.split("\n")]
    # Of a rank: into its log; rank 0's is on the terminal.
    print(localized("\n".join(lines)), file=sys.stderr, flush=True)
    return exit_code


def run(main: Callable[[], int | None], interrupted: str = "") -> None:
    """Run a command of data_tools to the end of this process. interrupted: as guarded has it."""
    sys.exit(guarded(main, interrupted=interrupted))

"""The end of every command: a mistake of the user prints its message alone; exit codes are those of a shell."""

from collections.abc import Callable

from data_tools import cli
from data_tools.formats.errors import DataError
from launch.errors import UserError


def guarded(main: Callable[[list[str]], int | None], argv: list[str], interrupted: str = "") -> int:
    """Run main(argv). Returns its exit code, 2 for a mistake of the user or a full disk, 130 after Ctrl-C.

    interrupted: printed after Ctrl-C: what is left, and what to do next.
    """
    return cli.guarded(lambda: main(argv), (UserError, DataError), interrupted)

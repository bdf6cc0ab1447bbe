"""How every command here ends: mistakes of the user as their message alone, exit codes as a shell has them."""

from collections.abc import Callable

from data_tools import cli
from data_tools.formats.errors import DataError
from launch.errors import UserError


def guarded(main: Callable[[list[str]], int | None], argv: list[str], interrupted: str = "") -> int:
    """Run main(argv); the exit code: what it returned, 2 for a mistake of the user or a full disk, 130 after Ctrl-C.

    interrupted: what is left after Ctrl-C and what to do then, for those who ask.
    """
    return cli.guarded(lambda: main(argv), (UserError, DataError), interrupted)

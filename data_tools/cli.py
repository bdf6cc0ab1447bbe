"""What the commands of data_tools share: the parser, and how a mistake of the user is shown."""

import argparse
import difflib
import sys
from collections.abc import Callable

from data_tools.formats.errors import DataError

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130


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

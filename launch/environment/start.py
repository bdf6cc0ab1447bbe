"""Start a command of the Makefile, with variables of make as its arguments.

    python launch/environment/start.py launch/commands/merge.py --output_dir:OUTPUT :ARGS...

A value that make or a shell reads as a part of a line may start other commands. So the Makefile names variables, whose
values are in the environment, and this hands them on as they are.

    --output_dir:OUTPUT   the flag and the value of OUTPUT; nothing where it is not given
    :MODEL                the value alone
    --adapter:ADAPTER...  the words of a value, as a shell tells words apart
"""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not launch/environment

from data_tools.language import localized
from launch.errors import UserError

NAMED = re.compile(r"(--\w+)?:([A-Z_]+)(\.\.\.)?")


def main(argv: list[str]) -> int:
    """Run the command."""
    try:
        os.execv(sys.executable, [sys.executable, *filled_in(argv, os.environ)])
    except UserError as error:
        print(localized(f"error: {error}"), file=sys.stderr)
        return 2


def filled_in(words: Iterable[str], variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the words, with values in the place of names.

    Raises:
        UserError: For a quotation that nothing closes.
    """
    for word in words:
        named = NAMED.fullmatch(word)
        if named is None:
            yield word
        elif value := variables.get(named[2]):
            try:
                values = shlex.split(value) if named[3] else [value]
            except ValueError as error:
                raise UserError(f"{named[2]}={value}: {error}") from None
            yield from [named[1]] if named[1] else []
            yield from map(os.path.expanduser, values)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

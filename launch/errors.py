"""What a user can mend, and how it is shown: as its message alone."""

import os
import sys
from collections.abc import Callable

from data_tools.formats.errors import DataError


class UserError(Exception):
    """A mistake the user can mend: shown without a traceback, exit code 2.

    The message names the key, the value found, the values allowed and the fix.
    """


def guarded(main: Callable[[list[str]], int | None], argv: list[str]) -> int:
    """Run main(argv); the exit code: what it returned, 2 for a mistake of the user, else as a shell has it."""
    try:
        return main(argv) or 0
    except (UserError, DataError) as error:
        if os.environ.get("PADDLE_TRAINER_ID", "0") == "0":  # every rank found it; one says it
            print(f"error: {error}", file=sys.stderr, flush=True)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read our output, `head` perhaps, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to flush into the pipe
        return 141

"""How every command ends: mistakes of the user as their message alone, exit codes as a shell has them."""

import os
import sys
from collections.abc import Callable

from data_tools.formats.errors import DataError
from launch.errors import UserError


def guarded(main: Callable[[list[str]], int | None], argv: list[str]) -> int:
    """Run main(argv); the exit code: what it returned, 2 for a mistake of the user, 130 after Ctrl-C."""
    try:
        return main(argv) or 0
    except (UserError, DataError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)  # of a rank: into its log; rank 0's is on the terminal
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read our output, `head` perhaps, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to flush into the pipe
        return 141

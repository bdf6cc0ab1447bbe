"""How every command ends: mistakes of the user as their message alone, exit codes as a shell has them."""

import errno
import os
import sys
from collections.abc import Callable

from data_tools.formats.errors import DataError
from launch.errors import UserError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def guarded(main: Callable[[list[str]], int | None], argv: list[str]) -> int:
    """Run main(argv); the exit code: what it returned, 2 for a mistake of the user or a full disk, 130 after Ctrl-C."""
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
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        where = f": {error.filename}" if error.filename else ""
        print(f"error: {error.strerror}{where}. Free some and start again.", file=sys.stderr, flush=True)
        return 2

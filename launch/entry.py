"""What every entry point that trains shares: quiet imports, settings before Paddle, errors without tracebacks."""

import logging
import os
import sys
import warnings
from typing import Callable

from launch.errors import UserError
from launch.processes.orphans import die_with_parent


def guarded(main: Callable[[list[str]], None], argv: list[str]) -> int:
    """Run main(argv); the exit code. A mistake of the user is its message on stderr and exit code 2."""
    try:
        main(argv)
    except UserError as error:
        if os.environ.get("PADDLE_TRAINER_ID", "0") == "0":  # every rank found it; one says it
            print(f"error: {error}", file=sys.stderr, flush=True)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def flag_value(argv: list[str], name: str, default: str) -> str:
    """The value of --name in argv (the last one wins), for what must be known before the flags can be parsed."""
    value = default
    for position, word in enumerate(argv):
        if word == f"--{name}" and position + 1 < len(argv):
            value = argv[position + 1]
        elif word.startswith(f"--{name}="):
            value = word.partition("=")[2]
    return value


def prepare_process(argv: list[str]) -> list[str]:
    """Make this process ready to import Paddle and to train; the lines to tell the user.

    Called again in a process that has Paddle already (a forked rank), it leaves the settings alone, which that
    process has inherited.
    """
    die_with_parent()
    _quieten_libraries()
    lines = []
    on_cpu = flag_value(argv, "device", "gpu") == "cpu"
    processes = int(os.environ.get("PADDLE_LOCAL_SIZE", "1"))
    if on_cpu and "paddle" not in sys.modules:
        from launch.cpu.settings import prepare

        lines.append(prepare(flag_value(argv, "cpu_fast", "auto"), processes))
    if on_cpu and processes > 1:
        from launch.rehearsal.collectives import install

        install()
    return lines


def _quieten_libraries() -> None:
    """Keep what libraries say about themselves off the terminal: warnings at import, paddlenlp's INFO log."""
    warnings.filterwarnings("ignore")
    os.environ.setdefault("GLOG_minloglevel", "2")
    logging.disable(logging.INFO)

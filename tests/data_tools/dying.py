"""Work on disk that is killed at one of its steps."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path


def forked(function: Callable, *args) -> int:
    """The exit code of a function in a process of its own; negative: the signal that ended it."""
    process = multiprocessing.get_context("fork").Process(target=function, args=args)
    process.start()
    process.join(60)
    return process.exitcode


def die_at(step: int, *functions: tuple[object, str], before: dict[str, Callable] | None = None) -> None:
    """Have the `step`-th call of any of these functions kill this process. before: what one still does then."""
    calls = 0

    def deadly(name: str, function: Callable) -> Callable:
        def called(*args, **options):
            nonlocal calls
            calls += 1
            if calls == step:
                (before or {}).get(name, lambda *args: None)(*args)
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **options)

        return called

    for owner, name in functions:
        setattr(owner, name, deadly(name, getattr(owner, name)))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

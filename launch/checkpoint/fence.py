"""The generations of an elastic run: only the newest one writes to the output directory. No Paddle.

Whenever the nodes of an elastic run change, its ranks are started anew, as its next generation. A process of an earlier
one may still be there: stopped by SIGSTOP, or on a node that the network does not reach. Its lock on the directory
says nothing then. So OUTPUT/run.generation holds the number of the newest generation, and what belongs to an earlier
one refuses to write once it looks there. Each generation also has its own names for unfinished checkpoints, so that
ranks that do not look never write into another generation's.
"""

import os
import re
from pathlib import Path

from launch.errors import UserError

FILE = "run.generation"
# Set for the ranks of an elastic run: "4 of 10.0.0.1:8090", the number of their generation and where their nodes meet.
GENERATION = "LAUNCH_GENERATION"
LABEL = re.compile(r"(\d+) of (\S+)")


def label(number: int, master: str) -> str:
    """What GENERATION is set to."""
    return f"{number} of {master}"


def begin(output: Path | str) -> int:
    """Begin the next generation; its number. Earlier ones refuse to write from now on.

    In place and always of the same length: NFS shows a file's new contents to whoever opens it afterwards, but may show
    a renamed file only a minute later.
    """
    number = newest(output) + 1
    descriptor = os.open(Path(output) / FILE, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(descriptor, f"{number:012d}\n".encode(), 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return number


def newest(output: Path | str) -> int:
    """The number of the newest generation, 0 where there was none. Raises UserError for a file of something else."""
    path = Path(output) / FILE
    try:
        text = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return 0
    if not text.isdecimal():
        raise UserError(f"{path}: found {text[:40]!r}, expected the number of a generation. Move the file elsewhere.")
    return int(text)


def own() -> int | None:
    """The generation of this process; None where its run is not elastic."""
    found = LABEL.fullmatch(os.environ.get(GENERATION, ""))
    return int(found[1]) if found else None


def require_newest(output: Path | str) -> None:
    """Raises UserError where this process belongs to an earlier generation. Does nothing where the run is not
    elastic."""
    number = own()
    if number is not None and newest(output) != number:
        raise UserError(
            f"{output}: generation {newest(output)} of this run has begun, and this process is of generation {number}: "
            "it writes nothing any more."
        )


def suffix() -> str:
    """Behind the name of an unfinished checkpoint: ".4" in generation 4, nothing where the run is not elastic."""
    number = own()
    return "" if number is None else f".{number}"


def lock_label() -> str:
    """For the lock of the output directory: ", generation 4 of 10.0.0.1:8090", nothing where the run is not elastic."""
    return f", generation {os.environ[GENERATION]}" if own() is not None else ""


def is_of_run(holder: str, master: str) -> bool:
    """Whether the lock with this text was taken by a generation of the elastic run that meets at `master`."""
    return holder.endswith(f" of {master}") and ", generation " in holder


def may_take_over(holder: str) -> bool:
    """Whether this process may take the lock with this text: of an earlier generation of its own run."""
    mine, theirs = LABEL.fullmatch(os.environ.get(GENERATION, "")), LABEL.search(holder)
    return bool(mine and theirs and mine[2] == theirs[2] and int(theirs[1]) < int(mine[1]))

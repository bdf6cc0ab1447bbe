"""Read a lock: the exact packages, versions and hashes that `make setup` installs.

    python launch/environment/pins.py paddlepaddle < cpu.lock > gpu.lock     the lock without one package

The standard library alone: the doctor uses it where nothing is installed.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"
PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>[^ ]+)(?: ; (?P<marker>.+?))? \\$", re.MULTILINE)


@dataclass(frozen=True)
class Pin:
    """One package of a lock.

    Attributes:
        marker: The condition (PEP 508) under which it is installed, "" for always.
    """

    name: str
    version: str
    marker: str


def read_lock(path: Path) -> list[Pin]:
    """Return all pins of a lock in the order of the file; a name occurs once per marker."""
    return [Pin(match["name"], match["version"], match["marker"] or "") for match in PIN.finditer(path.read_text())]


def paddle_version() -> str:
    """Return the pinned version of Paddle, the same for CPU and GPU."""
    return next(pin.version for pin in read_lock(REQUIREMENTS / "cpu.lock") if pin.name == "paddlepaddle")


def without(lock: str, name: str) -> str:
    """Return the lock's text without one package: its line and the indented lines (hashes, origin) below it."""
    return re.sub(rf"^{re.escape(name)}==.*\n(?:    .*\n)*", "", lock, count=1, flags=re.MULTILINE)


if __name__ == "__main__":
    sys.stdout.write(without(sys.stdin.read(), sys.argv[1]))

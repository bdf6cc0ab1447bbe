"""The command that starts all ranks: `python -m paddle.distributed.launch ... SCRIPT.py FLAGS`."""

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from launch.processes.flags import Flags, flag_lines, flag_words

LAUNCHER = "paddle.distributed.launch"


@dataclass(frozen=True)
class LaunchCommand:
    """One run of the launcher on this machine.

    script:    path of the shared module; the launcher runs only a path that ends in .py as Python
    flags:     of the script
    log_dir:   where the launcher writes workerlog.N
    devices:   numbers of the cards, one rank each; empty: ranks on the CPU
    processes: how many ranks
    master:    "host:port" where ranks of several machines meet, None on one machine
    """

    script: Path
    flags: Flags
    log_dir: str
    devices: tuple[str, ...]
    processes: int
    master: str | None = None

    def words(self) -> list[str]:
        """The command to execute."""
        return [*self._head(), str(self.script), *flag_words(self.flags)]

    def text(self) -> str:
        """The command to read and to paste into a shell, one flag a line."""
        lines = [self._head(), [_short(self.script)], *flag_lines(self.flags)]
        return " \\\n    ".join(shlex.join(line) for line in lines)

    def _head(self) -> list[str]:
        where = ["--nproc_per_node", str(self.processes)]
        if self.devices:
            where = ["--gpus", ",".join(self.devices)]
        master = ["--master", self.master] if self.master else []
        return [_python(), "-m", LAUNCHER, *where, *master, "--log_dir", self.log_dir]


def _python() -> str:
    """This interpreter: by name where that finds it, else by path."""
    return "python" if shutil.which("python") == sys.executable else _short(sys.executable)


def _short(path: str | Path) -> str:
    """Relative to the current folder where that leads downwards, else absolute."""
    relative = os.path.relpath(path)
    return os.path.abspath(path) if relative.startswith("..") else relative

"""Make .venv, the environment of every command here, unless it exists and is up to date.

    make setup                      Paddle for CPUs; with cards, for them
    make setup DEVICE=cpu           CPU build in any case
    make setup-gpu CUDA=12.6        GPU build of that CUDA version
    make setup PYTHON=python3.12    another interpreter
    python launch/environment/setup.py --print      only print the commands

.venv/setup.json is written last and records what .venv was made for. If it is missing (the installation was
interrupted) or different (the lock has changed, the repository was moved), .venv is made again. This file uses the
standard library only.
"""

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # the repository, not launch/environment/

from data_tools.children import end_process
from data_tools.cli import Parser
from launch.cpu.matmul import measure
from launch.devices import cuda
from launch.environment.pins import REQUIREMENTS, paddle_version, read_lock
from launch.errors import UserError
from launch.guard import guarded

VENV = ROOT / ".venv"
STAMP = VENV / "setup.json"
LOG = ROOT / "build" / "setup.log"
LOCK = ROOT / "build" / "setup.lock"
SECONDS_BETWEEN_LINES = 10


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = Parser("python launch/environment/setup.py", __doc__)
    parser.add_argument(
        "--device", choices=("cpu", "gpu"), help="build of Paddle; default: as before, at first by the cards here"
    )
    parser.add_argument("--cuda", metavar="VERSION", help="GPU build of this CUDA version: 12.6, 12.9 or 13.0")
    parser.add_argument("--print", action="store_true", help="print the commands instead of running them")
    args = parser.parse_args(argv)
    build = choose_build(args.device, args.cuda, read_stamp().get("paddle"))
    if args.print:
        print("\n".join(shlex.join(command) for command in commands(build).values()))
    elif read_stamp() != wanted(build):
        make_environment(build)


def choose_build(device: str | None, cuda_version: str | None, current: str | None) -> str:
    """Return which Paddle to install: "cpu" or a GPU wheel's tag, "cu126".

    current: the build in .venv, kept by default.
    """
    if cuda_version:
        return cuda.wheel_named(cuda_version).tag
    if device == "cpu":
        return "cpu"
    if current and (device is None or current != "cpu"):
        return current
    machine = cuda.probe()
    if machine:
        return cuda.choose_wheel(machine).tag
    if device == "gpu":
        raise UserError("no NVIDIA driver with a card found here: name the build, make setup-gpu CUDA=12.6")
    return "cpu"


def lock_of(build: str) -> Path:
    """Return the lock of a build."""
    return REQUIREMENTS / ("cpu.lock" if build == "cpu" else "gpu.lock")


def interpreter() -> Path:
    """Return the interpreter that runs this file, outside of any virtual environment."""
    return Path(sys._base_executable).resolve()  # pyright: ignore[reportAttributeAccessIssue]  # no public name


def wanted(build: str) -> dict[str, str]:
    """Return the required stamp. It has the repository's folder, since .venv contains absolute paths."""
    return {
        "root": str(ROOT),
        "python": f"{sys.version.split()[0]} {interpreter()}",
        "paddle": build,
        "lock": hashlib.sha256(lock_of(build).read_bytes()).hexdigest(),
    }


def read_stamp() -> dict[str, str]:
    """Return the stamp of .venv; {} without one."""
    try:
        return json.loads(STAMP.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}


def commands(build: str) -> dict[str, list[str]]:
    """Return {description: command} of the steps that make .venv from nothing."""
    uv = shutil.which("uv")
    python = str(VENV / "bin" / "python")
    if uv:
        create = [uv, "venv", "--quiet", "--python", str(interpreter()), str(VENV)]
        install = [uv, "pip", "install", "--python", python]
    else:
        create = [str(interpreter()), "-m", "venv", str(VENV)]
        install = [python, "-m", "pip", "install", "--disable-pip-version-check"]
    lock = lock_of(build)
    steps = {
        "making an empty environment": create,
        # The lock is complete, so there is nothing to resolve (--no-deps).
        f"installing the packages of requirements/{lock.name}, which takes longest": [
            *install, "--no-deps", "--require-hashes", "-r", str(lock)
        ],
    }  # fmt: skip
    if build != "cpu":
        # From Paddle's own index, with the CUDA libraries of the same index; all else is there already.
        wheel = next(wheel for wheel in cuda.WHEELS if wheel.tag == build)
        paddle = [*install, "--index-url", wheel.index, f"paddlepaddle-gpu=={paddle_version()}"]
        steps[f"installing Paddle from {wheel.index}"] = paddle
    # Editable, so that `import launch` works from any folder; built with the lock's setuptools, offline.
    steps["installing this repository"] = [*install, "--no-build-isolation", "--no-deps", "--editable", str(ROOT)]
    return steps


def is_running() -> bool:
    """Return whether another process is making .venv now."""
    try:
        with open(LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def make_environment(build: str) -> None:
    """Make .venv from nothing. If several are started at once, one works and the others wait for it."""
    LOG.parent.mkdir(exist_ok=True)
    with open(LOCK, "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("setup: another make is making .venv; waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        if read_stamp() == wanted(build):
            return
        announce(build)
        started = time.monotonic()
        stamp = wanted(build)
        shutil.rmtree(VENV, ignore_errors=True)
        with open(LOG, "w") as log:
            steps, packages = commands(build), len({pin.name for pin in read_lock(lock_of(build))})
            for number, (what, command) in enumerate(steps.items(), start=1):
                print(f"setup: {number} of {len(steps)}, {what}", flush=True)
                run(command, log, packages)
        STAMP.write_text(json.dumps(stamp, indent=2) + "\n")
        measure(VENV / "bin" / "python")
        print(f"setup: done in {time.monotonic() - started:.0f} s", flush=True)


def announce(build: str) -> None:
    """Print what will be installed and why."""
    reason = ""
    if VENV.exists():
        stamp = read_stamp()
        changed = [key for key, value in wanted(build).items() if stamp.get(key) != value]
        reason = f" anew (changed: {', '.join(changed)})" if stamp else " anew (it was not finished)"
    packages = {pin.name for pin in read_lock(lock_of(build))}
    paddle = "Paddle for CPU, 1.8 GB" if build == "cpu" else f"Paddle for CUDA ({build}), several GB"
    tool, time_needed = ("uv", "seconds to a minute") if shutil.which("uv") else ("pip", "about a minute")
    print(
        f"setup: making .venv{reason} with Python {sys.version.split()[0]} and {tool}: "
        f"{len(packages)} packages,\n       {paddle}, {time_needed} on a fast network",
        flush=True,
    )


def run(command: list[str], log, packages: int) -> None:
    """Run one step with its output in the log, and show how many of the packages pip has reached.

    Raises:
        UserError: With the log's end if it fails.
    """
    log.write(f"$ {shlex.join(command)}\n")
    log.flush()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    assert process.stdout is not None, "a pipe"
    try:
        show = PipProgress(packages)
        for line in process.stdout:
            log.write(line)
            log.flush()
            show.line(line)
        show.end()
    finally:
        process.stdout.close()
        end_process(process, shlex.join(command[:3]))
    if process.returncode:
        tail = LOG.read_text(errors="replace").splitlines()[-12:]
        raise UserError(
            f"set-up failed (exit code {process.returncode}) in: {shlex.join(command)}\n  | "
            + "\n  | ".join(tail)
            + f"\nThe whole output is in {os.path.relpath(LOG)}. Network and disk space are the usual causes"
            " (make doctor); mend it and run the same command again."
        )


class PipProgress:
    """Shows pip's progress, read from its output: one line on a terminal, elsewhere a line every ten seconds."""

    def __init__(self, packages: int):
        self.packages, self.reached = packages, 0
        self.is_terminal = sys.stdout.isatty()
        self.shown = time.monotonic()

    def line(self, line: str) -> None:
        """Show the progress of a line of pip's output."""
        if line.startswith(("Collecting ", "Processing ")):  # from an index, from a file of this machine
            self.reached += 1
            name = line.split()[1].rpartition("/")[2]
            self._show(f"downloading {self.reached} of {self.packages} packages: {name}", False)
        elif line.startswith("Installing collected packages") and self.reached:
            self._show(f"installing {self.reached} packages", True)

    def _show(self, text: str, at_once: bool) -> None:
        if self.is_terminal:
            print(f"\r\033[K       {text}", end="", flush=True)
        elif at_once or time.monotonic() - self.shown >= SECONDS_BETWEEN_LINES:
            self.shown = time.monotonic()
            print(f"       {text}", flush=True)

    def end(self) -> None:
        """End the line of progress."""
        if self.is_terminal and self.reached:
            print("\r\033[K", end="", flush=True)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))

"""Packages that only some commands need: installed into this environment when such a command is started, as locked."""

import importlib
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

from launch.environment.pins import REQUIREMENTS, read_lock
from launch.errors import UserError


def require(name: str, lock: str) -> None:
    """Install all of a lock of requirements/, unless its package `name` is there in the locked version.

    The lock has the environment's versions of packages that both name, which stay as they are.

    Raises:
        UserError: If pip fails, with the end of its output.
    """
    path = REQUIREMENTS / lock
    pinned = next(pin.version for pin in read_lock(path) if pin.name == name)
    try:
        if version(name) == pinned:
            return
    except PackageNotFoundError:
        pass
    print(f"setup: installing {name} {pinned} into {sys.prefix} (requirements/{lock})", flush=True)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(
        [*install, "--require-hashes", "-r", str(path)], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode:
        said = "\n  | ".join((done.stdout + done.stderr).strip().splitlines()[-6:])
        raise UserError(f"{name} {pinned} cannot be installed:\n  | {said}\nNetwork and disk are the usual causes.")
    importlib.invalidate_caches()

"""A folder in which the commands of a page can be typed: it looks like the repository, what they write stays in it."""

import subprocess
import sys
from pathlib import Path

from tests.store import ROOT

LINKED = ("Makefile", "data_tools", "launch", "recipes", "requirements")


def link_repository(folder: Path) -> Path:
    """Fill a folder; its .venv/bin/python is this Python. `make` needs `-o setup` there."""
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return folder


def bash(block: str, folder: Path) -> str:
    """What the commands of a page's block print on the standard output. Each must end well."""
    block = f'make() {{ command make --no-print-directory -o setup "$@"; }}\n{block}'  # .venv is ours
    command = ["bash", "-euo", "pipefail", "-c", block]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{block}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout

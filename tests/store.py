"""What tests share and is costly to make (trained runs, materials): made when a test first asks, then kept.

    folder, result = kept("material/dialogues", make)       # make(folder) returns what JSON can hold

Workers of pytest share it under a lock, and so do later runs of the tests, as long as no file of the product or of the
tests' helpers changes: build/tests/ has a folder for each state of these files, the newest two of which stay.
What is kept is read alone: a test that changes files copies them to its tmp_path.
"""

import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "tests"
PRODUCT = ("launch", "data_tools", "custom_ops", "recipes", "requirements")
STATES = 2
# Results differ with the instructions that MKL uses, and without a correction (tests/ranks.py).
ENVIRONMENT = ("MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR", "MKL_DEBUG_CPU_TYPE", "TESTS_WITHOUT")


def kept(name: str, make: Callable[[Path], Any]) -> tuple[Path, Any]:
    """Return the folder of a name and what make(folder) returned, now or when it was first asked for.

    make gets an empty folder. Where it raises, nothing is kept.
    """
    folder = state_folder() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    done = folder.with_name(f"{folder.name}.done.json")
    with open(folder.with_name(f"{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed: another worker may make it now
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            result = json.dumps(make(folder))
            done.write_text(result)
    return folder, json.loads(done.read_text())


@cache
def state_folder() -> Path:
    """Return the folder for the files as they are now, and remove those of older states."""
    digest = hashlib.sha256(repr([sys.version, *map(os.environ.get, ENVIRONMENT)]).encode())
    files = [file for room in PRODUCT for file in (ROOT / room).rglob("*")]
    files += [file for file in (ROOT / "tests").rglob("*.py") if not file.name.startswith("test_")]
    for file in sorted(file for file in files if file.is_file() and "__pycache__" not in file.parts):
        digest.update(f"{file.relative_to(ROOT)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    folder = BUILD / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    for old in sorted(BUILD.iterdir(), key=lambda one: one.stat().st_mtime)[:-STATES]:
        shutil.rmtree(old, ignore_errors=True)
    return folder

"""Whole demos, as `make demo-NAME` starts them."""

import json
import subprocess
import sys
from pathlib import Path

from tests.real_model import import_real_model
from tests.store import ROOT


def run_demo(*words: object, time_limit: float = 600) -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / "launch" / "commands" / "demo.py", *words]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=time_limit)


def results_with_the_real_model(name: str, folder: Path) -> dict:
    """Return the results of a demo that ends well, in the folder out. Skips the test where no model can be had."""
    model = import_real_model(folder, None)
    done = run_demo(name, "--model", model, "--directory", folder / "out", time_limit=3000)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads((folder / "out" / "results.json").read_text())

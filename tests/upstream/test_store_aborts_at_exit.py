"""A process that serves a store ends well, whenever the others leave it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES = [([], -signal.SIGABRT), (["store_aborts_at_exit"], 0)]


@pytest.mark.parametrize(("corrections", "exit_code"), CASES, ids=["upstream", "corrected"])
def test_ends_when_another_rank_leaves_after_its_destructors(corrections, exit_code):
    command = [sys.executable, "-m", "tests.upstream.exiting_store", *corrections]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout == "done\n" and done.returncode == exit_code, done.stderr[-2000:]

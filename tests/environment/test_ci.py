"""What CI runs: both test targets, and the exit code of the worse one."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("test", "test_long", "code"), [(0, 0, 0), (1, 0, 1), (0, 1, 1)])
def test_both_are_run_and_a_failure_of_either_counts(tmp_path, test, test_long, code):
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    (tmp_path / "Makefile").write_text(f"test:\n\t@exit {test}\ntest-long:\n\t@exit {test_long}\n")
    browser = tmp_path / "bin" / "chromium"  # or a machine without one would have it installed
    browser.parent.mkdir()
    browser.write_text("#!/bin/sh\n")
    browser.chmod(0o755)
    environment = os.environ | {"PATH": f"{browser.parent}:{os.environ['PATH']}"}
    command = ["bash", str(tmp_path / ".ci" / "run")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == code
    assert f"ci: make test: exit code {2 * test} after" in result.stdout  # make's own code for a failure is 2
    assert f"ci: make test-long: exit code {2 * test_long} after" in result.stdout

"""What CI runs: make lint, test and test-long, all of them; it fails if any failed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("lint", "test", "test-long")


@pytest.mark.parametrize("failing", ["", "lint", "test", "test-long"])
def test_all_are_run_and_a_failure_of_any_counts(tmp_path, failing):
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    (tmp_path / "Makefile").write_text("".join(f"{target}:\n\t@exit {int(target == failing)}\n" for target in TARGETS))
    browser = tmp_path / "bin" / "chromium"  # or a machine without one would have it installed
    browser.parent.mkdir()
    browser.write_text("#!/bin/sh\n")
    browser.chmod(0o755)
    environment = os.environ | {"PATH": f"{browser.parent}:{os.environ['PATH']}"}
    command = ["bash", str(tmp_path / ".ci" / "run")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == (1 if failing else 0)
    for target in TARGETS:
        code = 2 if target == failing else 0  # make's own code for a failure
        assert f"ci: make {target}: exit code {code} after" in result.stdout

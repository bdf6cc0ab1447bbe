"""What CI runs: make lint, test, test-long and a slice of test-nightly, all of them; it fails if any failed."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.processes.waiting import gone
from tests.store import ROOT

TARGETS = ("setup", "lint", "regenerate", "test", "test-long", "test-nightly")


def run_ci(folder: Path, makefile: str) -> subprocess.CompletedProcess:
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    (folder / "Makefile").write_text(makefile)
    browser = folder / "bin" / "chromium"  # or a machine without one would have it installed
    browser.parent.mkdir()
    browser.write_text("#!/bin/sh\n")
    browser.chmod(0o755)
    environment = os.environ | {"PATH": f"{browser.parent}:{os.environ['PATH']}"}
    command = ["bash", str(folder / ".ci" / "run")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("failing", ["", "lint", "test-nightly"])
def test_all_are_run_and_a_failure_of_any_counts(tmp_path, failing):
    result = run_ci(tmp_path, "".join(f"{target}:\n\t@exit {int(target == failing)}\n" for target in TARGETS))
    assert result.returncode == (1 if failing else 0)
    for target in TARGETS:
        code = 2 if target == failing else 0  # make's own code for a failure
        shown = {"test-nightly": "test-nightly SLICE=turn", "regenerate": "regenerate CHECK=1"}.get(target, target)
        assert f"ci: make {shown}: exit code {code} after" in result.stdout
        assert re.search(rf"^ +0\.0 min  make {shown}$", result.stdout, re.MULTILINE)


def test_what_a_target_leaves_is_named_and_ended(tmp_path):
    left = "setsid sleep 300 & echo $$! > left; until grep -q ^sleep /proc/$$!/cmdline; do sleep 0.01; done"
    result = run_ci(tmp_path, f"test:\n\t@{left}\nsetup lint regenerate test-long test-nightly:\n\t@:\n")
    [line] = [line for line in result.stdout.splitlines() if " left process " in line]
    pid = (tmp_path / "left").read_text().strip()
    assert line.startswith(f"ci: make test left process {pid}, which is ended: ")
    assert gone(int(pid)) and result.returncode == 0

"""make certify ARGS=--pretend: every check runs to its end on the CPU, and nothing of it is a certificate."""

import json
import os
import subprocess
import sys

import pytest

from launch.certify.checks import all_checks
from tests.repository_folder import ROOT


def certify(folder, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "launch/commands/certify.py", "--output", str(folder), *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=900)


@pytest.mark.nightly
def test_all_checks_end_and_none_passes(tmp_path):
    done = certify(tmp_path, "--pretend")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "certify.json").read_text())
    assert [result["name"] for result in report["results"]] == [check.name for check in all_checks()]
    assert report["of"]["pretended"]
    for result in report["results"]:
        assert result["mark"] == "–" and result["rows"] and not result["failure"], result
        assert all(row["mark"] != "✗" for row in result["rows"])
    page = (tmp_path / "certify.md").read_text()
    assert "**A pretended run" in page and "✗ " not in page.partition("## Checks")[2]

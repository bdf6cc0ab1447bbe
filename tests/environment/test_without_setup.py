"""What needs no set-up: planning, with the system's Python and no packages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store import ROOT


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """The repository as it is cloned, without .venv, and in `bin` a python3 that finds no packages."""
    clone = tmp_path_factory.mktemp("clone")
    for name in ("Makefile", "launch", "data_tools", "recipes"):
        (clone / name).symlink_to(ROOT / name)
    (clone / "bin").mkdir()
    python = clone / "bin" / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -s -E "$@"\n')
    python.chmod(0o755)
    return clone


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["help"], "plan-X"),
        (["plan-lora-1gpu"], "GiB"),
        pytest.param(
            ["measures", "MODEL=llama-7b", "GPUS=2", "GPU_MEMORY_GB=24"],
            "| LoRA on a base of 4 bits (QLoRA) |",
            marks=pytest.mark.long,
        ),
        pytest.param(
            ["fit", "MODEL=llama-7b", "GPUS=1", "GPU_MEMORY_GB=40", "METHOD=lora"],
            "\nmake lora-",
            marks=pytest.mark.long,
        ),
    ],
)
def test_planning_needs_no_packages(clone, words, said):
    environment = {"PATH": f"{clone}/bin:{os.environ['PATH']}", "HOME": str(clone)}
    done = subprocess.run(["make", *words], cwd=clone, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout and done.stderr == ""
    assert not (clone / ".venv").exists()

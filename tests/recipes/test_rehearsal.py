"""A rehearsal of the 8-card recipe: eight ranks that train together, from a checkpoint that was read."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from launch.reporting.records import read_summary, read_train_log
from tests.recipes.machine import ROOT, WISHES

PYTHON = Path(sys.executable)


def rehearse(output: Path, *flags: str) -> subprocess.CompletedProcess:
    clean = {name: value for name, value in os.environ.items() if name not in WISHES}
    recipe = ROOT / "recipes" / "llama-7b" / "pretrain.sh"
    return subprocess.run(
        ["bash", recipe, *flags],
        cwd=ROOT,
        env=clean | {"ACTION": "rehearse", "OUTPUT": str(output), "PATH": f"{PYTHON.parent}:{clean['PATH']}"},
        capture_output=True,
        text=True,
        timeout=500,
    )


@pytest.fixture(scope="module")
def output(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("rehearsal")


@pytest.fixture(scope="module")
def rehearsed(output) -> subprocess.CompletedProcess:
    done = rehearse(output, "--max_steps", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_says_what_it_changes(rehearsed):
    assert "rehearsing pretrain-llama7b: 8 processes on the CPU" in rehearsed.stdout
    assert "  --fp16 1 -> 0  (fp32: the CPU has no kernels in half precision)" in rehearsed.stdout


def test_eight_ranks_share_the_states_of_stage_two(rehearsed, output):
    summary = read_summary(output / "output")
    assert summary["topology"]["processes"] == 8
    assert summary["topology"]["sharding_parallel_degree"] == 8
    assert "8 processes (sharding stage2 8)" in rehearsed.stdout
    assert sorted(path.name for path in (output / "log").iterdir()) == [
        f"workerlog.{rank}" for rank in range(8)
    ]


def test_trains_at_the_loss_of_random_weights(rehearsed, output):
    """ln V + h sigma^2 / 2 = 6.944, within the spread of natural text."""
    steps = [record for record in read_train_log(output / "output") if "loss" in record]
    assert [record["global_step"] for record in steps] == [1, 2, 3]
    assert steps[0]["loss"] == pytest.approx(math.log(1024) + 64 * 0.02**2 / 2, rel=0.03)


def test_flag_at_fault_is_told_before_anything_starts(tmp_path):
    done = rehearse(tmp_path, "--max_steps", "many", "--sharding_stage", "2")
    assert done.returncode == 2
    assert "✗ --max_steps" in done.stderr and "✗ --sharding_stage" in done.stderr
    assert done.stderr.endswith("error: pretrain-llama7b cannot be rehearsed with these flags.\n")
    assert done.stdout == ""

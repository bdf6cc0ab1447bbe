"""benchmarks/cpu_training.py as a whole, with the fused RMSNorm that its first row needs."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks import bare_card, cpu_training, rms_norm_cpu
from benchmarks.rms_norm_cpu import runs_here
from tests.store import ROOT


@pytest.mark.nightly
def test_all_rows_train_the_same(site, tmp_path):
    python = cpu_training.default_torch_python()
    found = subprocess.run([python, "-c", "import torch, transformers"], capture_output=True, text=True)
    assert found.returncode == 0, f"`make test-long` installs what is compared with: {found.stderr}"
    flags = ["--threads", "1", "--shapes", "64x2", "--rounds", "1", "--output", str(tmp_path / "out.json")]
    command = [sys.executable, "benchmarks/cpu_training.py", *flags]
    environment = os.environ | {"PYTHONPATH": str(site)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["results"]["64x2"]["difference"] < 5e-5
    assert {len(losses) for losses in report["results"]["64x2"]["losses"].values()} == {3}
    for row in cpu_training.ROWS:
        assert row.name in done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("benchmark", "flags", "shown"),
    [
        ("cpu_step", "--shapes 1,16,64,4,176,256,2", ["attention", "RMSNorm", "AdamW"]),
        ("rms_norm_cpu", "--rounds 1 --threads 1", [row.case for row in rms_norm_cpu.ROWS if runs_here(row)]),
    ],
    ids=["cpu_step", "rms_norm_cpu"],
)
def test_pieces_and_rows_are_all_measured(site, benchmark, flags, shown):
    command = [sys.executable, f"benchmarks/{benchmark}.py", *flags.split()]
    environment = os.environ | {"PYTHONPATH": str(site)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=560)
    assert done.returncode == 0, done.stderr
    assert [words for words in shown if words not in done.stdout] == []


@pytest.mark.nightly
def test_the_script_for_a_bare_card_measures_every_part(tmp_path):
    """With tiny sizes on the CPU, and the CUDA kernels emulated."""
    command = [cpu_training.default_torch_python(), "benchmarks/bare_card.py", "--device", "cpu"]
    done = subprocess.run([*command, "--output", tmp_path / "out.json"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    report = json.loads((tmp_path / "out.json").read_text())
    assert list(report) == list(bare_card.PARTS)
    assert all(found["ok"] and len(found) > 2 for found in report.values()), report


def test_a_part_of_it_that_hangs_or_fails_costs_no_other(tmp_path, monkeypatch):
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import sys, time\nprint('begun', flush=True)\ntime.sleep(600 if 'card' in sys.argv else 0)\nexit(3)"
    )
    monkeypatch.setattr(bare_card, "WORKER", worker)
    late, failed = bare_card.run("card", "cpu", 0.5), bare_card.run("rates", "cpu", 60)
    assert (late["ok"], late["error"]) == (False, "begun\n\nnot done in 0 s")
    assert (failed["ok"], failed["error"]) == (False, "begun\n")
    assert bare_card.run("rates", "cpu", -1)["error"] == "no time is left"

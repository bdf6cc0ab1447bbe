"""The measured matrix product of this machine, and the plan of a run on its CPU by it."""

import json
import sys
from pathlib import Path

import pytest

from launch.cpu import matmul
from launch.environment.doctor_checks import check_products
from launch.plan.hardware import CPU, cpu_of_rank
from launch.plan.job import FLOAT32
from launch.plan.plan_report import time_lines
from launch.plan.time_plan import plan_time
from tests.plan.test_time import JOB

HERE = "Some CPU, 8 cores"


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """kept(text): the file that holds what was measured, on a machine of 8 cores."""
    monkeypatch.setenv(matmul.VARIABLE, str(tmp_path / "matmul.json"))
    monkeypatch.setattr(matmul, "_machine", lambda: HERE)
    return (tmp_path / "matmul.json").write_text


def test_a_plan_for_a_cpu_follows_the_measured_product(kept):
    job = JOB.changed(compute=FLOAT32)
    before = plan_time(job)
    assert before.card == CPU and "uncalibrated" in time_lines(before)[0]
    kept(json.dumps({"machine": HERE, "flops": job.layout.processes * 2.5 * CPU.full_flops}))
    after = plan_time(job)
    assert cpu_of_rank(1).full_flops == job.layout.processes * after.card.full_flops
    for part in ("matrix products", "attention", "element-wise", "optimizer"):
        assert after.parts[part] == pytest.approx(before.parts[part] / 2.5)
    assert "by 500 GFLOP/s a rank, measured by make doctor" in time_lines(after)[0]
    assert "GFLOP/s in float32" in check_products().found


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "\0", '{"machine": "Some CPU, 8 cores"}'),
        *(json.dumps({"machine": HERE, "flops": flops}) for flops in (None, [], "x", 0, -2e11, 1e40, 10**400)),
        json.dumps({"machine": HERE, "flops": float("nan")}),
        json.dumps({"machine": "Some CPU, 2 cores", "flops": 5e11}),
    ],
)
def test_another_machine_and_a_damaged_file_count_as_not_measured(kept, text):
    kept(text)
    assert matmul.measured_flops() is None and cpu_of_rank(2) == CPU


def test_nothing_is_measured_twice_nor_where_the_file_is_off(kept, monkeypatch):
    nothing = Path("/nowhere/python")
    assert matmul.measure(nothing) is None
    kept(json.dumps({"machine": HERE, "flops": 5e11}))
    assert matmul.measure(nothing) == 5e11
    monkeypatch.setenv(matmul.VARIABLE, "")
    monkeypatch.setattr(matmul.subprocess, "run", pytest.fail)
    assert matmul.measure(nothing) is None


@pytest.mark.long
def test_measuring_keeps_what_it_found(tmp_path, monkeypatch):
    monkeypatch.setenv(matmul.VARIABLE, str(tmp_path / "matmul.json"))
    flops = matmul.measure(Path(sys.executable))
    assert flops and json.loads((tmp_path / "matmul.json").read_text()) == {
        "machine": matmul._machine(),
        "flops": flops,
    }
    assert len(list(tmp_path.iterdir())) == 1

"""The measured matrix product of this machine, and the plan of a run on its CPU by it."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.cpu_training import model_of
from launch.config.flag_values import parse_flags
from launch.cpu import matmul
from launch.environment.doctor_checks import check_products
from launch.plan.hardware import CPU, MEASURED_CPU, cpu_of_rank
from launch.plan.job import FLOAT32, Job
from launch.plan.plan_report import time_lines
from launch.plan.time_plan import plan_time
from tests.plan.test_time import JOB

HERE = "Some CPU, 8 cores"
FLAGS: str = "--model_name_or_path llama-tiny --max_seq_length 256 --per_device_train_batch_size 8 --sharding="


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
    reach, wide = MEASURED_CPU["reach"][0], MEASURED_CPU["memory_bandwidth"] / CPU.memory_bandwidth
    assert after.parts["matrix products"] == pytest.approx(before.parts["matrix products"] / 2.5 / reach)
    assert after.parts["element-wise"] == pytest.approx(before.parts["element-wise"] / wide)
    assert "by 500 GFLOP/s a rank, measured by make doctor" in time_lines(after)[0]
    assert "GFLOP/s in float32" in check_products().found


def test_a_measured_step_lies_in_the_planned_range(kept):
    """benchmarks/cpu_training.py --clock cpu --threads 1 --shapes 256x6 took 1.25 s without fused_ln for 8 x 256
    tokens, where a product of 1,024 reached 108 GFLOP/s of one thread by the same clock.
    """
    kept(json.dumps({"machine": HERE, "flops": 108e9}))
    config = model_of("256x6") | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    plan = plan_time(replace(Job.from_flags("run_pretrain.py", parse_flags(FLAGS.split()), 1), config=config))
    low, high = (share * plan.tokens_per_second for share in plan.shares)
    assert low < 8 * 256 / 1.25 < high and plan.tokens == 8 * 256


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

"""What failures cost: the formula beside known cases and a simulation, its constants, and what a plan prints of it."""

import json
import re
import statistics
from dataclasses import replace
from math import sqrt

import pytest

from benchmarks.goodput import case, simulate
from launch.config.layout import Layout
from launch.families.named_configs import load_config
from launch.plan import goodput
from launch.plan.goodput import Goodput, plan_goodput
from launch.plan.hardware import CARDS
from launch.plan.job import FLOAT16, Job
from launch.plan.plan_report import JSON, report
from tests.store import ROOT

RESULTS = ROOT / "benchmarks" / "results"
A100 = CARDS["A100-80G"]
ELEMENTS = 6738415616  # of LLaMA-7B
JOB = Job(
    config=load_config("llama-7b"),
    layout=Layout(1, 512, 1, 2, "stage1"),
    micro_batch=1,
    accumulation=8,
    sequence_length=2048,
    compute=FLOAT16,
    amp="O2",
    master_weights=True,
    flash_attention=True,
    saves_in_background=True,
    save_steps=200,
)
PLAN = Goodput(mtbf=36_000.0, step=1.0, stall=2.0, latency=0.0, restart={"start": 60.0})


def test_a_share_loses_the_stall_half_an_interval_and_the_restart_and_youngs_interval_is_best():
    """To first order: 2 of 402 s, 200 and 60 of each 36,000 s."""
    assert PLAN.share(400) == pytest.approx(1 - 2 / 402 - 201 / 36_000 - 60 / 36_000, abs=1e-4)
    assert PLAN.share(10**9) == 0.0
    assert replace(PLAN, latency=100.0).share(400) == pytest.approx(PLAN.share(400) - 100 / 36_000, abs=1e-4)
    best = PLAN.best_save_steps
    assert best == pytest.approx(sqrt(2 * 2.0 * 36_000.0), rel=0.01)
    assert PLAN.share(best) >= max(map(PLAN.share, range(best // 2, 2 * best))) - 1e-6


@pytest.mark.parametrize(
    ("changes", "steps"), [({"stall": 1e-3}, 60), ({"stall": 1e-3, "step": 7.0}, 9), ({"latency": 900.0}, 900)]
)
def test_saves_are_not_closer_than_a_minute_nor_than_a_save_takes(changes, steps):
    assert replace(PLAN, **changes).best_save_steps == steps


@pytest.mark.parametrize("in_background", [False, True])
def test_the_simulation_agrees(in_background):
    """300 interruptions of 1,024 cards: the mean of as many times differs by 6 % now and then, the share hardly."""
    plan = case(1024, in_background)
    for steps in (plan.best_save_steps, 200):
        assert simulate(plan, 1024, steps, 300, 0) == pytest.approx(plan.share(steps), rel=0.01)


def test_rates_are_those_stored():
    stall, restart = (json.loads((RESULTS / f"{name}.json").read_text()) for name in ("checkpoint_stall", "restart"))
    waits = {way: stall["bytes"][way] / statistics.median(seconds) for way, seconds in stall["seconds"].items()}
    assert pytest.approx(waits["in the background"], rel=0.05) == goodput.COPY_RATE
    assert pytest.approx(waits["at once"], rel=0.05) == goodput.WRITE_RATE
    assert pytest.approx(restart["start_seconds"], rel=0.05) == goodput.START_SECONDS
    assert pytest.approx(restart["hash_rate"], rel=0.05) == goodput.HASH_RATE
    assert pytest.approx(restart["read_rate"], rel=0.05) == goodput.READ_RATE


def test_a_rank_writes_its_share_and_reads_what_it_holds():
    """Half of the weights, which two pipeline stages hold, and 1/1,024 of 12 bytes an element: the largest tensors are
    dealt whole, so ranks differ."""
    plan = plan_goodput(JOB, A100, 10.0)
    written = ELEMENTS * 14 / 1024
    assert plan.latency == plan.restart["first copy"] == pytest.approx(written / 0.43e9)
    assert plan.stall == pytest.approx(written * (1 / (31.5e9 * 0.8 / 2) + 1 / 11e9))
    reading = (plan.restart["read"] - written / 1.6e9) * 10.7e9
    assert ELEMENTS <= reading < ELEMENTS * 1.01 + 12 * 4096 * 32_000
    at_once = plan_goodput(replace(JOB, saves_in_background=False), A100, 10.0)
    assert at_once.latency == 0 and at_once.stall > plan.latency and "first copy" not in at_once.restart


def test_a_plan_prints_both_shares_unless_little_is_lost():
    text = " ".join(report(JOB, A100, mtbf_hours=20_000).split())
    data = json.loads(report(JOB, A100, JSON, mtbf_hours=20_000))["goodput"]
    shares = re.search(
        r"goodput: (\S+)% with --save_steps 200 \(every .*?\), at best (\S+)% with (\d+) \(every .*?\)", text
    )
    assert shares, text
    assert float(shares[1]) == round(100 * data["share"], 1) < float(shares[2]) == round(100 * data["best_share"], 1)
    assert int(shares[3]) == data["best_save_steps"]
    assert "1.2 interruptions a day on 1,024 cards, restart " in text
    assert data["interruptions_per_day"] == pytest.approx(24 * 1024 / 20_000)
    assert data["save_interval_seconds"] / 200 == pytest.approx(data["best_save_interval_seconds"] / int(shares[3]))
    # 8 cards fail once in 9 months, and the copies take well under 1 %.
    few = replace(JOB, layout=Layout(1, 8, 1, 1, "stage1"))
    assert "goodput" not in report(few, A100)
    assert "goodput" in report(replace(few, saves_in_background=False, save_steps=10), A100)
    assert json.loads(report(few, A100, JSON))["goodput"]["share"] > 0.99
    assert json.loads(report(few, None, JSON))["goodput"] is None
    assert json.loads(report(replace(few, save_steps=0), A100, JSON))["goodput"]["share"] is None

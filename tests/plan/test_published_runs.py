"""The public runs that the plan is compared with (benchmarks/published_runs.json)."""

import re
from collections import Counter

import pytest

from benchmarks.plan_runs import RATIO, Comparison, PublishedOutcome, _tensors, speeds
from benchmarks.published_runs import PLAIN, halves, layout_of, read, runs
from launch.config.layout import Layout
from launch.plan.job import Engine
from launch.plan.memory_model import plan_memory
from launch.plan.step import BACKWARD, FORWARD, OPTIMIZER
from launch.plan.time_plan import PUBLIC_SHARES, plan_time

STATED = {"where", "assumed", "left_out", "common", "rows", "name", "tool", "half", "drawn"}


def test_whole_sources_are_on_the_half_that_the_seed_draws():
    sources = read()["sources"]
    drawn = {name: half for half, names in halves(sources).items() for name in names}
    assert {source["name"]: source["half"] for source in sources} == {
        source["name"]: drawn.get(source["name"], 1) for source in sources
    }
    assert len(drawn) == 13
    rows = Counter(run.half for run in runs())
    assert sum(rows.values()) >= 120 and max(rows.values()) < 1.2 * min(rows.values())


def test_each_row_has_a_source_and_a_result_and_can_be_planned():
    for source in read()["sources"]:
        assert set(source) == STATED and re.match(r"https://\S+", source["where"]), source["name"]
    for run in runs():
        assert run.job.layout.processes == run.row["cards"], run
        assert run.row.get("memory") or run.row.get("speed"), run
        assert "counted" in run.row or "memory" not in run.row, run
        assert run.card or "speed" not in run.row, run
        assert run.kind in (PLAIN, "fused", "compiled")


def test_words_of_a_layout():
    assert layout_of("") == Layout(1, 1, 1, 1, "")
    assert layout_of("tensor2 pipeline4 sharding8 stage3") == Layout(1, 8, 2, 4, "stage3")


def test_a_plan_prints_the_range_of_the_first_half():
    compared = Comparison(speeds({1}))
    assert compared.range == PUBLIC_SHARES
    assert PUBLIC_SHARES[1] / PUBLIC_SHARES[0] <= RATIO


def test_a_tool_has_the_median_of_its_first_half_or_of_all_tools():
    shares = {"A": (0.6, 0.8, 1.0, 1.2, 1.9), "B": (3.0,), "PaddleNLP": (0.7,) * 9}
    first = [PublishedOutcome("", 1, PLAIN, tool, "", share=share) for tool, of in shares.items() for share in of]
    compared = Comparison(
        [*first, PublishedOutcome("", 2, PLAIN, "A", "", share=9.0), PublishedOutcome("", 1, PLAIN, "A", "", ((4, 5),))]
    )
    factors = {tool: compared.factor(tool, PLAIN) for tool in ("A", "B", "C", "PaddleNLP")}
    assert factors == {"A": 1.0, "B": pytest.approx(1.1), "C": pytest.approx(1.1), "PaddleNLP": 1.0}
    assert compared.residual(first[5]) == pytest.approx(3 / 1.1)
    assert "| first | plain | A |  | 1 | 25.0%, 25.0% | 5 | 25.0%, 66.7% |" in compared.table()


def run_of(source: str, **settings):
    """The first run of a source with these settings."""
    return next(run for run in runs() if run.source == source and settings.items() <= run.row.items())


MISTRAL = {"model": "mistral-7b-v0.1", "batch": 4}


def test_liger_takes_chunks_as_its_kernel_says():
    """The numbers of fused_linear_cross_entropy.py's own comment, and those of a large vocabulary."""
    for model, tokens in (("mistral-7b-v0.1", "2048"), ("llama-3-8b", "512")):
        assert run_of("fms-acceleration", model=model, batch=4, chunked="liger").job.loss_chunk_tokens == tokens


def test_other_tools_recompute_the_first_layer_over_a_frozen_embedding():
    """It keeps its input, a unit, in place of 26.6 units of attention, MLP and norms."""
    run = run_of("fms-acceleration", **MISTRAL, cards=1, lora={"rank": 16, "targets": "q_proj k_proj v_proj o_proj"})
    ours, theirs = (
        {phase.name: phase.parts for phase in plan_memory(job, run.card).stages[0].phases}
        for job in (run.job.changed(engine=Engine()), run.job)
    )
    unit = 4 * 4096 * 4096 * 2
    less = {name: (sum(ours[name].values()) - sum(theirs[name].values())) / unit for name in (FORWARD, BACKWARD)}
    assert less == {FORWARD: pytest.approx(25.6, abs=0.1), BACKWARD: pytest.approx(25.6, abs=0.1)}


def test_their_losses_and_sharded_bases_count_as_their_sources_say():
    logits = 4 * 4096 * 32000
    plain, fused = (run_of("fms-acceleration", **MISTRAL, cards=1, **more) for more in ({}, {"class": "fused"}))
    assert _tensors(plain, FORWARD, {"residuals": 5}) - _tensors(fused, FORWARD, {"residuals": 5}) == 4 * logits
    sharded = run_of("fms-acceleration", **MISTRAL, cards=2, base="nf4-dq")
    assert _tensors(sharded, OPTIMIZER, {"quantized base": 1000, "parameters": 1}) == 501


def test_older_flash_attention_takes_longer():
    run = run_of("llm-foundry", length=8192)
    slow, fast = (plan_time(job, run.card).parts["attention"] for job in (run.job, run.job.changed(engine=Engine())))
    scores = plan_time(run.job.changed(engine=Engine(flash_rate=1 / 3)), run.card).parts["attention"] - slow
    assert slow - fast == pytest.approx(scores) and slow > 1.5 * fast

"""The public runs that the plan is compared with (benchmarks/published_runs.json)."""

import re
from collections import Counter

from benchmarks.published_runs import PLAIN, halves, layout_of, read, runs
from launch.config.layout import Layout

STATED = {"where", "assumed", "left_out", "common", "rows", "name", "tool", "half"}


def test_whole_sources_are_on_the_half_that_the_seed_draws():
    sources = read()["sources"]
    assert {1: [], 2: []} | {half: sorted(names) for half, names in halves(sources).items()} == {
        half: sorted(source["name"] for source in sources if source["half"] == half) for half in (1, 2)
    }
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

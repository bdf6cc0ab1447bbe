"""Pages of measurements show what is stored beside them, as the benchmark writes it."""

import json

import pytest

from benchmarks import (
    bare_card,
    checkpoint_stall,
    cpu_step,
    cpu_training,
    grpo,
    restart,
    rms_norm_cpu,
    serving,
    startup,
    tokenizing,
)
from benchmarks.page import shown
from docs.tools.pages import ROOT, read

BENCHMARKS = (
    bare_card,
    checkpoint_stall,
    cpu_step,
    cpu_training,
    grpo,
    restart,
    rms_norm_cpu,
    serving,
    startup,
    tokenizing,
)


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda one: one.__name__.rpartition(".")[2])
def test_the_page_shows_what_is_stored(benchmark):
    """Else: python benchmarks/NAME.py --markdown"""
    stored = json.loads(read(benchmark.RESULTS))
    assert shown(benchmark.__name__.rpartition(".")[2]) == benchmark.page(stored)


def test_every_page_is_linked_where_it_is_explained():
    for page in (ROOT / "benchmarks" / "results").glob("*.md"):
        explained = read(page).split("[docs/")[1].partition("]")[0]
        assert f"](../benchmarks/results/{page.name})" in read(ROOT / "docs" / explained), page.name

"""Pages of measurements show what is stored beside them, as the benchmark writes it."""

import json
from importlib import import_module

import pytest

from benchmarks.page import shown
from docs.tools.pages import ROOT, read

BENCHMARKS = (
    *("bare_card", "checkpoint_stall", "cpu_step", "cpu_training", "grpo"),
    *("optimizers", "restart", "rms_norm_cpu", "serving", "serving_real", "startup", "tokenizing"),
)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_page_shows_what_is_stored(name):
    """Else: python benchmarks/NAME.py --markdown"""
    benchmark = import_module(f"benchmarks.{name}")
    assert shown(name) == benchmark.page(json.loads(read(benchmark.RESULTS)))


def test_every_page_is_linked_where_it_is_explained():
    for page in (ROOT / "benchmarks" / "results").glob("*.md"):
        explained = read(page).split("[docs/")[1].partition("]")[0]
        assert f"](../benchmarks/results/{page.name})" in read(ROOT / "docs" / explained), page.name

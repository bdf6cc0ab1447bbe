"""Tables of measurements are those of benchmarks/results, as the benchmark writes them."""

import json

import pytest

from benchmarks import bare_card, checkpoint_stall, cpu_step, cpu_training, restart, rms_norm_cpu, serving, tokenizing
from benchmarks.page import place
from docs.tools.pages import ROOT, read

TABLES = {
    "bare_card": (bare_card, "custom-ops"),
    "rms_norm_cpu": (rms_norm_cpu, "custom-ops"),
    "cpu_training": (cpu_training, "cpu-speed"),
    "cpu_step": (cpu_step, "cpu-speed"),
    "checkpoint_stall": (checkpoint_stall, "resume"),
    "restart": (restart, "resume"),
    "tokenizing": (tokenizing, "data"),
    "serving": (serving, "serve"),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_page_shows_what_is_stored(name):
    """Else: python benchmarks/NAME.py --markdown docs/PAGE.md"""
    benchmark, page = TABLES[name]
    stored = json.loads(read(benchmark.RESULTS))
    assert place(read(ROOT / "docs" / f"{page}.md"), f"{name}.py")[2] == benchmark.page(stored)

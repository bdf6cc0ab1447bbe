"""The plan against every published measurement on A100 cards (benchmarks/plan_published.py)."""

import statistics

import pytest

from benchmarks.page import shown
from benchmarks.plan_published import ROWS, page
from launch.preflight.proposals import SPARE

EACH, MEDIAN = 0.10, 0.05
MEASURED = [row for row in ROWS if row.published]


def test_each_is_within_10_per_cent_and_the_median_within_5():
    errors = {row.name: [abs(error) for error in row.errors] for row in MEASURED}
    assert {name: found for name, found in errors.items() if max(found) > EACH} == {}
    assert statistics.median(error for found in errors.values() for error in found) <= MEDIAN


def test_no_published_run_took_more_than_what_fit_leaves_free_for_it():
    assert 0.99 < max((1 - SPARE) / (1 + error) for row in MEASURED for error in row.errors) <= 1


def test_what_fitted_fits_and_what_did_not_does_not():
    judged = [row for row in ROWS if not row.published]
    assert judged and [row.name for row in judged if row.fits != row.fitted] == []


@pytest.mark.long
def test_the_page_has_what_the_command_writes():
    """Else: python benchmarks/plan_published.py --markdown"""
    assert shown("plan_published") == page()

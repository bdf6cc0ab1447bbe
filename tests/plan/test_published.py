"""The plan against every published measurement on A100 cards (benchmarks/plan_published.py)."""

import statistics
from pathlib import Path

import pytest

from benchmarks.page import place
from benchmarks.plan_published import ROWS, markdown
from launch.plan.fitting import SPARE

EACH, MEDIAN = 0.10, 0.05
MEASURED = [row for row in ROWS if row.published]


def test_each_is_within_10_per_cent():
    assert {row.name: row.errors for row in MEASURED if any(abs(error) > EACH for error in row.errors)} == {}


def test_no_published_run_took_more_than_what_fit_leaves_free_for_it():
    """A run whose plan leaves SPARE of a card free took no more than the card has."""
    assert 0.99 < max(shares()) <= 1


def shares() -> list[float]:
    """What each published run took, as a share of a card of which its plan takes 1 - SPARE."""
    return [(1 - SPARE) / (1 + error) for row in MEASURED for error in row.errors]


def test_the_median_is_within_5_per_cent():
    assert statistics.median(abs(error) for row in MEASURED for error in row.errors) <= MEDIAN


def test_what_fitted_fits_and_what_did_not_does_not():
    judged = [row for row in ROWS if not row.published]
    assert judged and [row.name for row in judged if row.fits != row.fitted] == []


@pytest.mark.long
def test_the_table_of_the_document_is_current():
    document = (Path(__file__).resolve().parents[2] / "docs" / "plan.md").read_text()
    assert place(document, "plan_published.py")[2] == markdown() + "\n"

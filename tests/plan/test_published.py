"""The plan against every published measurement on A100 cards (benchmarks/plan_published.py)."""

import statistics
from pathlib import Path

import pytest

from benchmarks.page import place
from benchmarks.plan_published import ROWS, markdown

EACH, MEDIAN = 0.10, 0.05
MEASURED = [row for row in ROWS if row.published]


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: f"{row.source} {row.name}")
def test_each_is_within_10_per_cent(row):
    assert all(abs(error) <= EACH for error in row.errors), row.errors


def test_the_median_is_within_5_per_cent():
    assert statistics.median(abs(error) for row in MEASURED for error in row.errors) <= MEDIAN


@pytest.mark.parametrize("row", [row for row in ROWS if not row.published], ids=lambda row: row.name)
def test_what_fitted_fits_and_what_did_not_does_not(row):
    assert row.fits == row.fitted


def test_the_table_of_the_document_is_current():
    document = (Path(__file__).resolve().parents[2] / "docs" / "plan.md").read_text()
    assert place(document, "plan_published.py")[2] == markdown() + "\n"

"""The stored results show every layout of the table, within its bounds, and every cell that was resumed."""

import re

from benchmarks.page import shown
from benchmarks.resuming import HEADINGS, row
from launch.reporting.markdown import markdown
from tests.distributed import parity
from tests.distributed.cells import RESUMED
from tests.distributed.layouts import LAYOUTS

HOW = "benchmarks/parity.py --markdown makes it anew"


def rows() -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in shown("parity").splitlines()][3:]


def test_rows_are_the_layouts():
    expected = [
        (layout.name, str(layout.processes), *(word for item in layout.flags.items() for word in item))
        for layout in LAYOUTS
    ]
    shown = [
        (name, processes, *re.findall(r"[^` ]+", flags.replace("--", "") if flags != "none" else ""))
        for name, processes, *_, flags in rows()
    ]
    assert shown == expected, HOW


def test_measured_differences_are_within_the_bounds():
    bounds = (parity.LOSS_TOLERANCE, parity.GRAD_NORM_TOLERANCE, parity.UPDATE_TOLERANCE)
    for name, _, *differences, _ in rows():
        assert all(float(value) <= bound for value, bound in zip(differences, bounds, strict=True)), name


def test_every_cell_was_resumed_to_the_bit():
    """Else: benchmarks/resuming.py --markdown"""
    cells = [row(cell, "equal") for cell in RESUMED]
    assert shown("resuming") == markdown(HEADINGS, cells, numbers=(2, 3))

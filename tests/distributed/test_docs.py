"""docs/layouts.md shows every layout of the table, within its bounds; docs/resume.md every cell that was resumed."""

import re

from benchmarks.page import place
from benchmarks.resuming import HEADINGS, row
from launch.reporting.markdown import markdown
from tests.distributed import parity
from tests.distributed.cells import RESUMED
from tests.distributed.layouts import LAYOUTS
from tests.recipes.machine import ROOT

HOW = "benchmarks/parity.py --markdown docs/layouts.md makes it anew"


def rows() -> list[list[str]]:
    lines = re.search(r"--markdown -->\n(.*?)<!-- end", (ROOT / "docs" / "layouts.md").read_text(), re.DOTALL)[1]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines.splitlines()][3:]


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
    """Else: benchmarks/resuming.py --markdown docs/resume.md"""
    page = (ROOT / "docs" / "resume.md").read_text(encoding="utf-8")
    cells = [row(cell, "equal") for cell in RESUMED]
    assert place(page, "resuming.py")[2] == markdown(HEADINGS, cells, numbers=(2, 3)) + "\n"

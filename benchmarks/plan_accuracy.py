"""How far the planned memory is from the memory of real training steps, on a CPU, in many layouts, methods, families.

    python benchmarks/plan_accuracy.py [--output benchmarks/results/plan_accuracy.json] [--only TEXT] [--markdown]

Each cell of tests/families/cells.py trains a tiny model for three steps by its method, on forked ranks
and gloo, with the framework's own operators (--cpu_fast off). Measured is the peak of Paddle's allocation statistics
after the first step, exact to the byte; planned is the replay of launch/plan. The worst rank of each cell counts.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.page import put
from launch.reporting.records import package_versions
from tests.families.cells import CELLS
from tests.plan.accuracy import measure
from tests.plan.material import make_material
from tests.ranks import RankServer

RESULTS = Path(__file__).resolve().parent / "results" / "plan_accuracy.json"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the results are written")
    parser.add_argument("--only", default="", help="cells whose name contains this; the others stay as stored")
    parser.add_argument("--markdown", action="store_true", help="only write the page of the stored results")
    args = parser.parse_args()
    if args.markdown:
        return put("plan_accuracy", "plan", markdown(json.loads(args.output.read_text())["cells"]))
    rows = {cell["cell"]: cell for cell in run([cell for cell in CELLS if args.only in cell.name])}
    if args.only:
        rows = {cell["cell"]: cell for cell in json.loads(args.output.read_text())["cells"]} | rows
    cells = [rows[cell.name] for cell in CELLS if cell.name in rows]
    args.output.write_text(json.dumps({"versions": package_versions(), "cells": cells}, indent=1) + "\n")


def run(cells: list) -> list[dict]:
    """Measure cells and return their rows."""
    ranks, rows = RankServer(), []
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        make_material(root)
        for cell in cells:
            worst = max(measure(ranks, cell, root), key=lambda peak: abs(peak.error))
            rows.append(
                {
                    "cell": cell.name,
                    "processes": cell.layout.processes,
                    "planned": worst.planned,
                    "measured": worst.measured,
                }
            )
            print(row(rows[-1]), flush=True)
    ranks.close()
    return rows


def row(one: dict) -> str:
    """Return the line of a cell."""
    error = one["planned"] / one["measured"] - 1
    sizes = f"{one['measured'] / 1e6:.2f} | {one['planned'] / 1e6:.2f}"
    return f"| {one['cell']} | {one['processes']} | {sizes} | {error:+.1%} |"


def markdown(rows: list[dict]) -> str:
    """Return the table for the page."""
    head = ["| family, method, layout | processes | measured MB | planned MB | error |", "| --- " + "| ---: " * 4 + "|"]
    return "\n".join([*head, *map(row, rows)])


if __name__ == "__main__":
    main()

"""How far each layout is from one process: six AdamW steps and one plain SGD step of a hidden-64, 2-layer LLaMA.

    .venv/bin/python benchmarks/parity.py                               # all layouts of tests/distributed/layouts.py
    .venv/bin/python benchmarks/parity.py tp2 pp2
    .venv/bin/python benchmarks/parity.py --markdown    # writes benchmarks/results/parity.md

The largest difference of a loss (training and evaluation), of an unclipped gradient norm (relative) and of an updated
weight (relative to its tensor's largest change). The bounds are those of tests/distributed/parity.py.
"""

import argparse
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not benchmarks/

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.page import put
from launch.reporting.markdown import markdown
from tests.distributed import parity
from tests.distributed.cells import PRETRAINING, Cell, model_of
from tests.distributed.layouts import LAYOUTS, Layout
from tests.ranks import RankServer
from tests.runs import Runs

HEADINGS = ("layout", "processes", "loss", "gradient norm", "updated weights")
TOLERANCES = (parity.LOSS_TOLERANCE, parity.GRAD_NORM_TOLERANCE, parity.UPDATE_TOLERANCE)
BOUNDS = ["bound", "", *(f"{bound:.0e}" for bound in TOLERANCES)]


def main(argv: list[str]) -> None:
    """Run the command."""
    names = [layout.name for layout in LAYOUTS]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("layout", nargs="*", metavar="LAYOUT", help=f"of: {', '.join(names)}")
    parser.add_argument("--markdown", action="store_true", help="also write the page of the results")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.layout) - set(names):
        parser.error(f"no layout {', '.join(sorted(unknown))}; there are: {', '.join(names)}")
    layouts = [layout for layout in LAYOUTS if layout.name in (arguments.layout or names)]
    measured = measure(layouts)
    Console(width=80).print(terminal_table(measured))
    if arguments.markdown:
        put("parity", "layouts", markdown_table(measured))


def measure(layouts: list[Layout]) -> dict[Layout, list[float]]:
    """Return for each layout the values below HEADINGS. What the tests have trained is not trained again."""
    ranks, measured = RankServer(), {}
    for layout in track(layouts, "training", console=Console(stderr=True)):
        runs, cell = Runs(ranks), Cell(PRETRAINING, layout, model=model_of(layout))
        found = parity.numbers_apart(runs(**cell.arguments), runs(**cell.alone.arguments))
        loss = max(found["loss"][0], found["eval_loss"][0])
        measured[layout] = [loss, found["grad_norm"][0], max(parity.updates_apart(runs, cell).values())]
    ranks.close()
    return measured


def cells(found: list[float]) -> list[str]:
    """Return numbers as cells."""
    return [f"{value:.1e}" for value in found]


def terminal_table(measured: dict[Layout, list[float]]) -> Table:
    """Return the table for the terminal."""
    table = Table(title="largest difference to one process")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "layout" else "right")
    table.add_row(*BOUNDS)
    for layout, found in measured.items():
        table.add_row(layout.name, str(layout.processes), *cells(found))
    return table


def markdown_table(measured: dict[Layout, list[float]]) -> str:
    """Return the table for the page."""
    rows = [[*BOUNDS, ""]]
    for layout, found in measured.items():
        flags = " ".join(f"--{name} {value}" for name, value in layout.flags.items())
        rows.append([layout.name, str(layout.processes), *cells(found), f"`{flags}`" if flags else "none"])
    return markdown([*HEADINGS, "flags"], rows, numbers=range(1, 5))


if __name__ == "__main__":
    main(sys.argv[1:])

"""Resumed runs beside uninterrupted ones: which layouts are equal to the last bit.

    .venv/bin/python benchmarks/resuming.py                               # all of RESUMED in tests/distributed/cells.py
    .venv/bin/python benchmarks/resuming.py pp2 stage3-2                  # those layouts
    .venv/bin/python benchmarks/resuming.py --markdown    # writes benchmarks/results/resuming.md

Each case trains a hidden-64 LLaMA to the end, then once more from the checkpoint on the way. Compared are loss,
learning rate, gradient norm and tokens of every step, and every file of the last checkpoint: weights, moments, powers
of beta, schedule, random numbers of every rank.
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
from tests.distributed.cells import RESUMED, Cell
from tests.distributed.parity import continued_apart
from tests.ranks import RankServer
from tests.runs import STEPS, Runs

HEADINGS = ("layout", "training", "resumed at", "steps compared", "to the bit")


def main(argv: list[str]) -> None:
    """Run the command."""
    names = list(dict.fromkeys(cell.layout.name for cell in RESUMED))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("layout", nargs="*", metavar="LAYOUT", help=f"of: {', '.join(names)}")
    parser.add_argument("--markdown", action="store_true", help="also write the page of the results")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.layout) - set(names):
        parser.error(f"no layout {', '.join(sorted(unknown))}; there are: {', '.join(names)}")
    ranks, rows = RankServer(), []
    cells = [cell for cell in RESUMED if cell.layout.name in (arguments.layout or names)]
    for cell in track(cells, "training", console=Console(stderr=True)):
        apart = continued_apart(Runs(ranks), cell)
        rows.append(row(cell, f"different: {', '.join(apart)}" if apart else "equal"))
    ranks.close()
    table = Table(*HEADINGS, title="resumed against uninterrupted")
    for cells_of_row in rows:
        table.add_row(*cells_of_row)
    Console(width=100).print(table)
    if arguments.markdown:
        put("resuming", "resume", markdown(HEADINGS, rows, numbers=(2, 3)))


def row(cell: Cell, verdict: str) -> tuple[str, ...]:
    """Return a row of the table."""
    batches = f" x {cell.layout.accumulation} micro batches" if cell.layout.accumulation > 1 else ""
    base = {"weight_only_int8": " on int8", "nf4": " on nf4"}.get(cell.flags.get("weight_quantize_algo"), "")
    trained = f"LoRA{base}, dropout 0.2" if "lora" in cell.flags else "prefix" if cell.flags else "pretraining"
    return (f"{cell.layout.name}{batches}", trained, str(STEPS // 2), str(STEPS // 2), verdict)


if __name__ == "__main__":
    main(sys.argv[1:])

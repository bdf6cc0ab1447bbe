"""How far each layout is from one process: ten AdamW steps and one plain SGD step of a hidden-64, 4-layer LLaMA.

    .venv/bin/python benchmarks/parity.py

Prints the largest difference of a loss, of an unclipped gradient norm (relative) and of an updated weight (relative
to its tensor's largest change). The bounds are those that tests/distributed/test_parity.py asserts.
"""

import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not benchmarks/

import numpy as np
from rich.console import Console
from rich.table import Table

from tests.distributed import test_parity as parity
from tests.distributed.layouts import LAYOUTS, SINGLE
from tests.ranks import RankServer


def main() -> None:
    ranks = RankServer()
    table = Table(title="largest difference to one process")
    for heading in ("layout", "processes", "loss", "gradient norm", "updated weights"):
        table.add_column(heading, justify="left" if heading == "layout" else "right")
    table.add_row("bound", "", *(f"{bound:.0e}" for bound in bounds()))
    with tempfile.TemporaryDirectory() as directory:
        runs = parity.Runs(ranks, Path(directory))
        for layout in LAYOUTS:
            table.add_row(layout.name, str(layout.processes), *(f"{value:.1e}" for value in differences(runs, layout)))
    ranks.close()
    Console(width=80).print(table)


def bounds() -> tuple[float, float, float]:
    return parity.LOSS_TOLERANCE, parity.GRAD_NORM_TOLERANCE, parity.UPDATE_TOLERANCE


def differences(runs: parity.Runs, layout) -> tuple[float, float, float]:
    """(loss, relative gradient norm, relative update) of a layout against one process, the largest of each."""
    single, split = runs.adamw(SINGLE), runs.adamw(layout)
    loss = np.abs(parity.column(split, "loss") - parity.column(single, "loss")).max()
    norm = np.abs(parity.column(split, "grad_norm") / parity.column(single, "grad_norm") - 1).max()
    initial = parity.weights(runs.root / "model")
    expected, found = parity.weights(runs.sgd_step(SINGLE)), parity.weights(runs.sgd_step(layout))
    update = max(
        np.abs(found[name] - expected[name]).max() / np.abs(expected[name] - start).max()
        for name, start in initial.items()
    )
    return float(loss), float(norm), float(update)


if __name__ == "__main__":
    main()

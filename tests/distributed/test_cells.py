"""Every cell of the table has the numbers of one process, and goes on from its checkpoint to the bit."""

import pytest

from launch.commands.ledger import main as ledger
from tests.distributed.cells import CELLS, ESSENTIAL, PRODUCTS, Cell
from tests.distributed.parity import beyond_tolerance, continued_apart


def parameters(cells: list[Cell], nightly: list[Cell] = ()) -> list:
    marks = {cell.name: pytest.mark.nightly for cell in nightly} | {cell.name: pytest.mark.long for cell in CELLS}
    known = {cell.name: cell for cell in [*cells, *nightly]}
    essential = {cell.name for cell in ESSENTIAL}
    return [pytest.param(cell, id=name, marks=[] if name in essential else marks[name]) for name, cell in known.items()]


@pytest.mark.parametrize("cell", parameters(*([one for one in group if not one.random] for group in (CELLS, PRODUCTS))))
def test_numbers_are_those_of_one_process(runs, cell):
    assert beyond_tolerance(runs, cell) == {}


@pytest.mark.parametrize("cell", parameters(CELLS, PRODUCTS))
def test_a_run_goes_on_to_the_bit(runs, cell, capsys):
    """From a checkpoint in the second epoch: every number of every step and every byte of the last checkpoint."""
    assert continued_apart(runs, cell) == []
    run = runs.continued(**cell.arguments)
    assert ledger([str(run.output)]) == 0
    step, samples = (run.column(key)[-1] for key in ("global_step", "consumed_samples"))
    assert f"step {step}, {samples} samples, " in capsys.readouterr().out

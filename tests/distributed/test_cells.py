"""Every cell of the table has the numbers of one process, and goes on from its checkpoint to the bit."""

import pytest

from launch.commands.ledger import main as ledger
from tests.distributed.cells import CELLS, ESSENTIAL, PRETRAINING, Cell
from tests.distributed.parity import beyond_tolerance, continued_apart


def parameters(cells: list[Cell]) -> list:
    return [pytest.param(cell, id=cell.name, marks=[] if cell in ESSENTIAL else [pytest.mark.long]) for cell in cells]


@pytest.mark.parametrize("cell", parameters([cell for cell in CELLS if not cell.random]))
def test_numbers_are_those_of_one_process(runs, cell):
    assert beyond_tolerance(runs, cell) == {}


@pytest.mark.parametrize("cell", parameters(CELLS))
def test_a_run_goes_on_to_the_bit(runs, cell, capsys):
    """From a checkpoint on the way: every number of every step and every byte of the last checkpoint."""
    assert continued_apart(runs, cell) == []
    run = runs.continued(**cell.arguments)
    assert ledger([str(run.output)]) == 0
    step, samples = (run.column(key)[-1] for key in ("global_step", "consumed_samples"))
    assert f"step {step}, {samples} samples, " in capsys.readouterr().out
    if cell.method == PRETRAINING:  # once by the checks, which no recipe has made here, and once by the training
        assert [list(facts["manifests"].values()) for facts in run.facts] == [[2]] * len(run.facts)

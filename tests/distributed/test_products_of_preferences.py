"""Whole products of layouts and flags of preference tuning and reward models, as the cells of test_cells.py."""

import pytest

from tests.distributed.cells import PAIRS, REWARDS, products
from tests.distributed.parity import beyond_tolerance, continued_apart


@pytest.mark.nightly
@pytest.mark.parametrize("cell", products(PAIRS, REWARDS), ids=lambda cell: cell.name)
def test_numbers_are_those_of_one_process_and_of_a_run_that_goes_on(runs, cell):
    assert continued_apart(runs, cell) == []
    if not cell.random:
        assert beyond_tolerance(runs, cell) == {}

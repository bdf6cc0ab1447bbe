"""Ranks that share samples have the losses and gradients of one that has them whole. In training, resumed and in other
layouts: tests/distributed/test_cells.py. Their memory: tests/plan/test_accuracy.py."""

import pytest

from launch.families.registry import FAMILIES

COMPARE = "tests.training.sequence_ranks_ranks:compare"
SHARING = [name for name, family in FAMILIES.items() if family.shares_samples]


@pytest.mark.parametrize(
    ("count", "names", "granularity"),
    [
        (2, ["llama"], "full"),
        pytest.param(2, SHARING, "core_attn", marks=pytest.mark.long),
        pytest.param(4, ["llama"], "core_attn", marks=pytest.mark.long),
    ],
)
def test_losses_and_gradients_of_packed_rows_are_those_of_one_process(ranks, count, names, granularity):
    assert SHARING == ["llama", "qwen2", "qwen3", "ernie4_5"]
    for found, multiple in ranks(count, COMPARE, names, granularity):
        assert multiple == 3 * count
        assert found.keys() == set(names)
        assert max(found.values()) <= 2e-6, found

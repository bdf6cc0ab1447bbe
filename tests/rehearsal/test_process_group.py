"""Collectives of a gloo group: their values with the bridge."""

import numpy as np
import pytest

# Ranks of one machine use shared memory, those of several nodes gloo.
ONE_MACHINE, TWO_NODES = {"PADDLE_NNODES": "1"}, {"PADDLE_NNODES": "2"}

CASES = "tests.rehearsal.process_group_ranks"


def values(ranks_in_group: int) -> np.ndarray:
    """[rank, 6, 2], as process_group_ranks.own_values gives them (that module needs Paddle)."""
    shape = (6, 2)
    return np.stack([np.random.RandomState(rank).randint(-8, 8, shape) for rank in range(ranks_in_group)])


@pytest.mark.parametrize("nodes", [ONE_MACHINE, pytest.param(TWO_NODES, marks=pytest.mark.long)])
def test_values(ranks, nodes):
    all_values = values(3)
    total, largest = all_values.sum(axis=0), all_values.max(axis=0)
    for rank, found in enumerate(ranks(3, f"{CASES}:results", environment=nodes)):
        assert found["sum"] == total.tolist()
        assert found["max"] == largest.tolist()
        assert rank != 2 or found["sum on rank 2"] == total.tolist()
        assert found["broadcast of rank 1"] == all_values[1].tolist()
        assert found["gathered list"] == found["gathered tensor"] == all_values.reshape(18, 2).tolist()
        own_rows = slice(2 * rank, 2 * rank + 2)
        assert found["scattered into a buffer"] == [100, 100, *total[own_rows].flatten(), 100, 100]
        assert found["scattered max"] == largest[own_rows].tolist()


def test_reduce_scatter_names_shapes_that_do_not_split(ranks):
    for message in ranks(2, f"{CASES}:reduce_scatter_of_wrong_shape"):
        assert message == "ValueError: reduce_scatter over 2 ranks: [6] does not split into [2]"


def test_reduce_scatter_is_out_of_autograds_sight(ranks):
    assert ranks(2, f"{CASES}:is_leaf_after_reduce_scatter") == [True, True]


def test_float16_sums_are_refused(ranks):
    for found in ranks(2, f"{CASES}:float16_sums"):
        for message in found:
            assert message.startswith("UserError: fp16: float16 cannot be summed over processes on a CPU")


def test_bfloat16_sums_are_right(ranks):
    assert ranks(2, f"{CASES}:bfloat16_sum") == [[3.0, 3.0]] * 2


def test_a_written_tensor_keeps_its_gradient(ranks):
    assert ranks(1, f"{CASES}:gradients_after_writing") == [{"tensor": [6.0, 6.0], "value": None}]

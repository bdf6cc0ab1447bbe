"""Sends and receives between the stages of a pipeline."""

import numpy as np
import pytest

CASES = "tests.rehearsal.point_to_point_ranks"


@pytest.mark.parametrize(
    ("in_new_group", "nodes"),  # one node: shared memory; two: gloo
    [(False, "1"), *(pytest.param(*case, marks=pytest.mark.long) for case in ((True, "1"), (False, "2"), (True, "2")))],
)
def test_pipeline_of_four_stages(ranks, in_new_group, nodes):
    found = ranks(4, f"{CASES}:pipeline", in_new_group, environment={"PADDLE_NNODES": nodes})
    for rank, received in enumerate(found):
        added_before = sum(10.0**stage for stage in range(rank))
        added_after = sum(10.0**stage for stage in range(rank + 1, 4))
        forward = [[batch + added_before] * (batch + 1) for batch in range(3)] if rank > 0 else []
        backward = [[batch + added_after] * (batch + 1) for batch in range(3)] if rank < 3 else []
        assert received == forward + backward


@pytest.mark.parametrize("dtype", ["float32", pytest.param("int64", marks=pytest.mark.nightly)])
def test_parts_arrive_in_their_place(ranks, dtype):
    _, received = ranks(2, f"{CASES}:parts", dtype)
    whole = np.arange(1, 13)
    for part, found in enumerate(received):
        expected = np.where(np.arange(12) // 4 == part, whole, 0).reshape(2, 6)
        assert found == expected.tolist()


@pytest.mark.long
def test_parts_of_all_ranks_are_gathered(ranks):
    assert ranks(3, f"{CASES}:gathered_parts") == [np.arange(1.0, 13.0).reshape(2, 6).tolist()] * 3

"""Collectives in shared memory."""

import numpy as np
import pytest

CASES = "tests.rehearsal.shared_memory_ranks"
nightly = pytest.mark.nightly


COUNT = 131_075  # values of 4 bytes: in three pieces; of 8 bytes: in five


def all_values(dtype: str) -> np.ndarray:
    """[rank, value], as own_values of the ranks."""
    return np.stack([np.random.RandomState(rank).randint(-8, 8, COUNT).astype(dtype) for rank in range(3)])


@pytest.mark.parametrize(
    "dtype", ["float32", *(pytest.param(one, marks=nightly) for one in ("float64", "int32", "int64"))]
)
def test_values_of_large_tensors(ranks, dtype):
    values = all_values(dtype)
    combined = {"SUM": values.sum(0), "PRODUCT": values.prod(0), "MAX": values.max(0), "MIN": values.min(0)}
    for rank, found in enumerate(ranks(3, f"{CASES}:collectives", dtype, COUNT)):
        for name, expected in combined.items():
            assert found[name] == expected.tolist(), name
        assert found["reduce"] == (combined["SUM"] if rank == 1 else values[rank]).tolist()
        assert found["broadcast"] == values[2].tolist()
        assert found["all_gather"] == found["older form"] == found["into"] == values.flatten().tolist()
        third = COUNT // 3
        assert found["all_to_all"] == values[:, rank * third : (rank + 1) * third].flatten().tolist()
        assert found["transfer"] == values[2 if rank == 0 else rank].tolist()


@pytest.mark.parametrize("size", [2, pytest.param(5, marks=nightly)])
def test_ranks_that_are_late_in_turn(ranks, size):
    assert ranks(size, f"{CASES}:at_different_speeds", 200) == [True] * size


def test_different_collectives_are_named(ranks):
    leader, other = ranks(2, f"{CASES}:different_collectives")
    assert leader == (
        "RuntimeError: group default: rank 1 is in SUM of 4 float32, rank 0 in SUM of 3 float32: "
        "the ranks of a group must call the same collectives in the same order"
    )
    assert other == "RuntimeError: group default: rank 0 has failed or ended before the end of SUM of 4 float32"


def test_tensors_of_other_forms(ranks):
    """Of no values; with arguments named as upstream's; not in one piece; outputs of other sizes."""
    for shape, named, columns, (short, other, flat) in ranks(2, f"{CASES}:other_forms"):
        assert (shape, named) == ([0, 3], [4.0, 4.0])
        assert columns == "ValueError: a tensor of shape [4, 2] does not lie in one piece, as a collective needs it"
        assert short == "ValueError: group default: 7 float32 is no room for 1 x 4 float32"
        assert other == "ValueError: group default: 4 float64 is no room for 1 x 4 float32"
        assert flat == "ValueError: group default: 7 float32 is no room for 2 x 4 float32"


@pytest.mark.parametrize(
    "which, said",
    [
        (2, "rank 2 has ended before"),
        pytest.param(0, "rank 0 has failed or ended before the end of", marks=pytest.mark.long),
    ],
)
def test_the_end_of_a_rank_is_seen_by_the_others(ranks, tmp_path, which, said):
    outcome = ranks.outcome(3, f"{CASES}:a_rank_ends", which, directory=tmp_path, grace=5.0)
    assert outcome.exit_codes[which] == 137
    seen = (tmp_path / f"workerlog.{1 if which == 0 else 0}").read_text()
    assert f"RuntimeError: group default: {said} barrier" in seen


@pytest.mark.long
def test_a_rank_that_does_not_come_is_waited_for_no_longer_than_the_limit(ranks):
    leader, _ = ranks(2, f"{CASES}:nobody_comes")
    assert leader == "RuntimeError: group default: not all ranks came to barrier in 0.5 s"

"""The ranks fixture: places, collectives, exact results, failures and time limits."""

import signal

import pytest

CASES = "tests.processes.rank_functions"


def test_each_rank_knows_its_place(ranks):
    places = ranks(2, f"{CASES}:place", environment={"COLOUR": "blue"})
    assert [(p["rank"], p["world_size"], p["colour"]) for p in places] == [(0, 2, "blue"), (1, 2, "blue")]


def test_collective_over_three_ranks(ranks):
    assert ranks(3, f"{CASES}:sum_over_ranks", [1.0, 10.0, 100.0]) == [111.0] * 3


def test_floats_come_back_exact(ranks):
    assert ranks(1, f"{CASES}:exact") == [0.30000000000000004]


def test_failing_rank_shows_its_traceback(ranks):
    with pytest.raises(AssertionError, match=r"(?s)rank 1 ---.*Traceback.*ValueError: a mistake on rank 1"):
        ranks(2, f"{CASES}:fail_on_rank", 1)


def test_time_limit(ranks):
    with pytest.raises(AssertionError, match="exit codes .143, 143.(?s:.*)time limit of 0.5 s"):
        ranks(2, f"{CASES}:sleep_forever", time_limit=0.5)


def test_data_workers_end_with_their_rank_and_leave_its_signals_to_it(ranks):
    """A worker that outlives its rank holds the lock of the output directory; one that ends first fails the rank."""
    assert ranks(1, f"{CASES}:data_workers") == [[[1, signal.SIGKILL]] * 2]

"""The ranks fixture shows why a rank has failed; and the data workers of a rank."""

import signal

CASES = "tests.processes.rank_functions"


def test_data_workers_end_with_their_rank_and_leave_its_signals_to_it(ranks):
    """A worker that outlives its rank holds the lock of the output directory; one that ends first fails the rank."""
    assert ranks(1, f"{CASES}:data_workers") == [[[1, signal.SIGKILL]] * 2]

"""All ranks act at the same step on what any rank requests, without a collective, whose result each would wait for."""


def test_all_learn_at_once_what_a_rank_requests_and_that_one_has_ended(ranks, tmp_path):
    """Of 12 ranks rank 1 has children, too: rank 0 learns from it what they request."""
    of_ranks = ranks(12, "tests.training.agreement_ranks:steps", str(tmp_path))
    assert [one["found"] for one in of_ranks] == [[[], *[["SIGTERM"]] * 12, []]] * 12
    error = "another rank has ended before the end of this step: "
    assert [one["error"][: len(error)] for one in of_ranks] == [error] * 10 + ["", error]


def test_a_rank_that_cannot_be_reached_is_named(ranks):
    """Such as behind a firewall that lets the launcher's ports through alone."""
    [said] = ranks(1, "tests.training.agreement_ranks:unreachable")
    assert said.startswith("rank 9 cannot reach rank 1 at 127.0.0.1: Connection refused. Open the ports between")

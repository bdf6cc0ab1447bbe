"""A row that is done takes no more part in its batch: it is given eos, so that generate() ends with the last one."""

from tests.serving.batch_ranks import EOS


def test_rows_that_are_done_are_given_eos(ranks):
    [found] = ranks(1, "tests.serving.batch_ranks:chosen")
    assert found["steps"] == [[EOS, 6, EOS, 7], [EOS, EOS, EOS, 4], [EOS] * 4]
    assert found["told"] == [[], [6, "length"], ["stop"], [7, 4, "failed"]]

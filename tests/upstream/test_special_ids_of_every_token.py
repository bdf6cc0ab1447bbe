"""Special ids while a text is decoded."""

LOOKED_UP = "tests.upstream.special_ids_ranks:looked_up"


def test_are_looked_up_once_and_again_where_they_change(ranks, tmp_path):
    [found] = ranks(1, LOOKED_UP, str(tmp_path), True)
    assert found["text"] == found["again"] and found["calls"] == 1
    assert -1 not in found["before"] and len(found["after"]) == len(found["before"]) + 1
    assert found["changed"] == len(found["after"]) + 1


def test_upstream_looks_them_up_for_every_token(ranks, tmp_path):
    """Seven, of which three are special and so decoded no further; the text is the same."""
    [stock], [ours] = (ranks(1, LOOKED_UP, str(tmp_path), corrected) for corrected in (False, True))
    assert stock["calls"] == 2 * (7 + 4)
    assert {**stock, "calls": 0} == {**ours, "calls": 0}

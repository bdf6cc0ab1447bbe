"""Numbers with their words."""

from data_tools.formats.plural import plural


def test_one_and_many():
    assert [plural(number, "row") for number in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]
    assert [plural(number, "process") for number in (1, 2)] == ["1 process", "2 processes"]
    assert [plural(number, "corpus", "corpora") for number in (1, 2)] == ["1 corpus", "2 corpora"]

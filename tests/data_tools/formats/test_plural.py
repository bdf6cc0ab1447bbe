from data_tools.formats.plural import counted


def test_one_and_many():
    assert [counted(number, "row") for number in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]
    assert [counted(number, "corpus", "corpora") for number in (1, 2)] == ["1 corpus", "2 corpora"]

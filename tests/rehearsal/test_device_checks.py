"""Checks for a GPU in tensor and pipeline parallelism."""

CASES = "tests.rehearsal.device_checks_ranks"


def test_device_number(ranks):
    assert ranks(1, f"{CASES}:device_id") == ["returned"]


def test_all_ranks_get_the_inputs_of_the_first(ranks):
    expected = {"ids": [[0, 1, 2], [3, 4, 5]], "positions": [0.5, 1.5, 2.5], "mask": [True, True]}
    assert ranks(2, f"{CASES}:broadcast_inputs") == [expected, expected]


def test_stages_may_send_to_each_other(ranks):
    expected = [{"ending": "returned", "sum": 140_000.0}, {"ending": "returned", "sum": 70_000.0}]
    assert ranks(2, f"{CASES}:both_stages_send") == expected

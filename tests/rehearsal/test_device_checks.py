"""Checks for a GPU in tensor and pipeline parallelism."""

import pytest

CASES = "tests.rehearsal.device_checks_ranks"


def test_device_number(ranks):
    assert ranks(1, f"{CASES}:device_id") == ["returned"]


@pytest.mark.nightly
def test_upstream_broadcasts_no_inputs_on_a_cpu(ranks):
    for message in ranks(2, f"{CASES}:broadcast_message"):
        assert message == "AssertionError: Only support xpu, gpu and custom_device now, but this is cpu"


def test_all_ranks_get_the_inputs_of_the_first(ranks):
    expected = {"ids": [[0, 1, 2], [3, 4, 5]], "positions": [0.5, 1.5, 2.5], "mask": [True, True]}
    assert ranks(2, f"{CASES}:broadcast_inputs") == [expected, expected]


@pytest.mark.nightly
def test_upstreams_order_of_sends_is_refused(ranks):
    """gloo would hang."""
    first, second = ranks(2, f"{CASES}:both_stages_send", True)
    assert first["ending"].startswith("RuntimeError: group ")
    assert "rank 1 is in 70000 float32 from rank 1, rank 0 in 70000 float32 from rank 0" in first["ending"]
    assert "rank 0 has failed or ended" in second["ending"]


def test_stages_may_send_to_each_other(ranks):
    expected = [{"ending": "returned", "sum": 140_000.0}, {"ending": "returned", "sum": 70_000.0}]
    assert ranks(2, f"{CASES}:both_stages_send", False) == expected

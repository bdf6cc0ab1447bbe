"""Groups of processes find each other, however many there are."""

import pytest

CASES = "tests.rehearsal.rendezvous_ranks"


@pytest.mark.nightly
def test_upstreams_groups_share_their_keys(ranks):
    """Every new group overwrites the addresses of the one before: the cause of refused connections."""
    for default, second, third in ranks(2, f"{CASES}:published_addresses", False):
        assert default != second != third


def test_groups_leave_the_common_stores_addresses_alone(ranks):
    for default, second, third in ranks(2, f"{CASES}:published_addresses", True):
        assert default == second == third


def test_many_groups_of_four_processes(ranks):
    for rank, found in enumerate(ranks(4, f"{CASES}:sums_in_many_groups")):
        assert len(found) == 2 * sum(rank in members[:-1] for members in found[: len(found) // 2])
        for *members, total in found:
            assert rank in members
            assert total == sum(10.0**member for member in members)


@pytest.mark.nightly
def test_upstreams_store_delays_small_messages(ranks):
    for delayed in ranks(2, f"{CASES}:delays_of_stores", False):
        assert delayed == [True]


def test_stores_are_answered_at_once(ranks):
    for delayed in ranks(2, f"{CASES}:delays_of_stores", True):
        assert delayed == [False, False]

"""Groups of processes find each other, however many there are."""

CASES = "tests.rehearsal.rendezvous_ranks"


def test_groups_leave_the_common_stores_addresses_alone(ranks):
    for default, second, third in ranks(2, f"{CASES}:published_addresses"):
        assert default == second == third


def test_many_groups_of_four_processes(ranks):
    for rank, found in enumerate(ranks(4, f"{CASES}:sums_in_many_groups")):
        assert len(found) == 2 * sum(rank in members[:-1] for members in found[: len(found) // 2])
        for *members, total in found:
            assert rank in members
            assert total == sum(10.0**member for member in members)


def test_stores_are_answered_at_once(ranks):
    for delayed in ranks(2, f"{CASES}:delays_of_stores"):
        assert delayed == [False, False]

"""Random numbers go on where a checkpoint has them."""

import pytest


def test_what_is_drawn_is_drawn_again(ranks):
    [found] = ranks(1, "tests.checkpoint.random_ranks:drawn_again", 7)
    assert found.keys() == {"python", "numpy", "paddle", "tensor parallel"}
    for kind, (first, following, again) in found.items():
        assert first != following and again == first, kind


@pytest.mark.parametrize("earlier_format", [False, True], ids=["", "earlier format"])
@pytest.mark.parametrize("resume", [(0, 1), (5, 8), (1, 2)])
def test_goes_on_where_the_rank_sees_other_cards(ranks, resume, earlier_format):
    """It was card 3 of 8."""
    [found] = ranks(1, "tests.checkpoint.random_ranks:drawn_on_cards", (3, 8), resume, earlier_format)
    assert found.keys() == {"paddle", "tensor parallel"}
    for kind, (first, following, again) in found.items():
        assert first != following and again == first, kind

"""Mixtral's experts and its auxiliary loss."""

import pytest

RANKS = "tests.upstream.mixtral_ranks"


def test_upstream_fails(ranks):
    with pytest.raises(AssertionError, match="ValueError"):
        ranks(1, f"{RANKS}:stock")


def test_compute_what_the_formula_says(ranks):
    [found] = ranks(1, f"{RANKS}:block_against_formula")
    assert found["difference"] <= 1e-6
    assert found["logits"] == [10, 4]
    first, *others = found["gradients"]
    assert first == [0.0] * 3, "no token was sent to the first expert, which has gradients all the same"
    assert all(sum(one) > 0 for one in others)


def test_one_token(ranks):
    assert ranks(1, f"{RANKS}:of_one_token") == [[1, 1, 16]]


def test_the_auxiliary_loss_is_part_of_training_alone(ranks):
    [found] = ranks(1, f"{RANKS}:losses")
    assert found["balanced"] - found["plain"] == pytest.approx(0.5 * found["auxiliary"], abs=1e-6)
    assert found["auxiliary"] > 1.9  # 2 where all experts have equally many tokens
    assert found["evaluated"] == found["plain"]
    assert found["first"] == [2, 10, 32]  # logits

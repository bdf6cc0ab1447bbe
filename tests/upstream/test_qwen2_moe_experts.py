"""Qwen2-MoE's experts. Their numbers are compared in tests/families and tests/weights."""

import pytest

RANKS = "tests.upstream.qwen2_moe_ranks"


def test_a_new_router_sends_tokens_to_all_experts(ranks):
    assert ranks(1, f"{RANKS}:chosen_experts", True) == [[True] * 6]


def test_upstream_fails(ranks):
    with pytest.raises(AssertionError, match="TypeError: .* x: int64, y: int32"):
        ranks(1, f"{RANKS}:losses", False)


def test_the_auxiliary_loss_is_part_of_training_alone(ranks):
    [found] = ranks(1, f"{RANKS}:losses", True)
    assert found["balanced"] - found["plain"] > 0.9  # 0.5 times 2 where all experts have equally many tokens
    assert found["evaluated"] == found["plain"]

"""LLaMA and Qwen2 under flash attention make no mask where none is given."""

import pytest

MADE = "tests.upstream.llama_flash_ranks:masks_made"
LENGTH = 13


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen2_moe"])
def test_make_none_where_none_is_given(ranks, family):
    found = ranks(1, MADE, family, True)[0]
    assert found["causal"] == [[], ["flash"]]
    assert found["prefix"][0] == []
    assert found["return_dict"] == [["hidden_states", "logits"]]  # all arguments arrive
    assert found["left padded"][0] == [[2, 1, LENGTH, LENGTH]]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen2_moe"])
def test_upstream_makes_one(ranks, family):
    found = ranks(1, MADE, family, False)[0]
    assert found["causal"] == [[[2, 1, LENGTH, LENGTH]], ["flash"]]
    assert found["left padded"][0] == [[2, 1, LENGTH, LENGTH]]

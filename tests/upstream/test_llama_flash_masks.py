"""What LLaMA, Qwen2, Qwen3 and Mixtral make of their masks under flash attention, on a CPU and on pretended cards."""

import pytest

DIFFERENCES = "tests.upstream.llama_flash_ranks:differences"
FAMILIES = ("llama", "qwen2", "qwen3", "qwen2_moe", "mixtral")
CARDS = {"CPU": None, "A100": [8, 0], "V100": [7, 0]}
CASES = ("causal", "left padded", "packed", "prefix", "one after cached")
KERNEL = {"CPU": [], "A100": ["flash"], "V100": ["memory efficient"]}
# Masks whose last dimension is no multiple of 8 are not for the memory efficient kernel (sdpa.py,
# check_attn_mask_alignment): 13 tokens; 9 and 10 with the cached ones.
MASKED = ("left padded", "packed", "one after cached")
REFUSED = "When attn_mask is set, causal can not be true."


@pytest.fixture(scope="module")
def corrected(ranks) -> dict:
    return {(name, card): ranks(1, DIFFERENCES, name, CARDS[card], True)[0] for name in FAMILIES for card in CARDS}


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("name", FAMILIES)
def test_is_that_of_exact_attention(corrected, name, card):
    for case in CASES:
        difference, taken, error = corrected[name, card][case]
        assert (case, error) == (case, "")
        assert difference < 1e-5, case
        masked = case in MASKED or (name, case) == ("mixtral", "prefix")  # 13 tokens and 6 of the prefix
        plain = card == "V100" and masked
        assert taken == (["math"] if plain else KERNEL[card]), case


@pytest.mark.parametrize("name", FAMILIES[:2])  # upstream has no Qwen3, and its Mixtral fails before
def test_upstream_fails(ranks, name):
    """Its results are wrong without an error, but for masks on cards that have the kernel: those it refuses."""
    found = {card: ranks(1, DIFFERENCES, name, CARDS[card], False)[0] for card in CARDS}
    for card, cases in found.items():
        assert cases["causal"][0] < 1e-5
        assert cases["prefix"][0] > 0.05, card
        for case in MASKED:
            if card == "A100":
                assert cases[case] == [None, [], REFUSED], case
            else:
                assert cases[case][0] > 0.05, (card, case)
    assert found["A100"]["prefix"][1] == ["memory efficient"]

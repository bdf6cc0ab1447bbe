"""What models make of their masks and their ALiBi under flash attention, on a CPU and on pretended cards."""

import math

import pytest

from launch.families.parameters import ALIBI_COLUMNS
from launch.families.registry import FAMILIES

RANKS = "tests.upstream.flash_ranks"
SOME, OTHERS = ["llama", "baichuan", "bloom"], ["qwen2", "qwen3", "qwen2_moe", "mixtral"]
KERNEL = {"CPU": [], "A100": ["flash"], "V100": ["memory efficient"]}
# Masks whose last dimension is no multiple of 8 are not for the memory efficient kernel (sdpa.py,
# check_attn_mask_alignment): 13 tokens; 9 and 10 with the cached ones. Mixtral's prefix has 6 more than 13.
MASKED = {"left padded", "packed", "one after cached"}
REFUSED = [None, [], "When attn_mask is set, causal can not be true."]
LENGTH = 13
ONE_MASK, MASK_OF_HEADS = [2, 1, LENGTH, LENGTH], [2, 4, LENGTH, LENGTH]

families = pytest.mark.parametrize("name", [*SOME, *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS)])


@pytest.fixture(scope="module")
def some(ranks) -> dict:
    return ranks(1, f"{RANKS}:observe", SOME, True)[0]


@pytest.fixture(scope="module")
def others(ranks) -> dict:
    return ranks(1, f"{RANKS}:observe", OTHERS, True)[0]


@pytest.fixture
def corrected(request, name) -> dict:
    return request.getfixturevalue("some" if name in SOME else "others")[name]


@pytest.fixture(scope="module")
def stock(ranks) -> dict:
    return ranks(1, f"{RANKS}:observe", ["llama", "baichuan", "bloom", "qwen2", "qwen2_moe"], False)[0]


@families
def test_attention_is_exact_by_the_kernel_of_the_card(corrected, name):
    for card, cases in corrected["attention"].items():
        assert len(cases) == 5
        for case, (difference, taken, error) in cases.items():
            assert error == "" and difference < 1e-5, (card, case)
            plain = card == "V100" and (case in MASKED or (name, case) == ("mixtral", "prefix"))
            assert taken == (["math"] if plain else KERNEL[card]), (card, case)


@families
def test_no_mask_is_made_where_none_is_given(corrected, name):
    if name in ("baichuan", "bloom"):  # one for all heads
        assert corrected["masks given"] == {"causal": [None], "packed": [ONE_MASK]}
    if "masks made" in corrected:
        made = corrected["masks made"]
        assert (made["causal"], made["prefix"][0]) == ([[], ["flash"]], [])
        assert made["return_dict"] == [["hidden_states", "logits"]]  # all arguments arrive
        assert made["left padded"][0] == [ONE_MASK]


def test_llama_flash_masks(stock):
    """Upstream's results are wrong without an error, but for masks on cards that have the kernel: those it refuses."""
    for name in ("llama", "qwen2"):
        for card, cases in stock[name]["attention"].items():
            assert cases["causal"][0] < 1e-5 and cases["prefix"][0] > 0.05, (name, card)
            for case in MASKED:
                assert cases[case] == REFUSED if card == "A100" else cases[case][0] > 0.05, (name, card, case)
        assert stock[name]["attention"]["A100"]["prefix"][1] == ["memory efficient"]


def test_llama_flash_alibi(stock):
    """Upstream refuses or loses the bias of Baichuan, and makes a mask for each head."""
    attention = stock["baichuan"]["attention"]
    assert attention["A100"]["causal"] == REFUSED and attention["CPU"]["causal"][0] > 0.05
    assert stock["baichuan"]["masks given"]["causal"] == [MASK_OF_HEADS]


def test_bloom_flash_alibi(stock):
    assert stock["bloom"]["masks given"]["causal"] == [MASK_OF_HEADS]


def test_llama_mask_of_nothing(stock):
    """Upstream makes one."""
    for name in ("llama", "qwen2", "qwen2_moe"):
        assert stock[name]["masks made"]["causal"] == [[ONE_MASK], ["flash"]], name
        assert stock[name]["masks made"]["left padded"][0] == [ONE_MASK], name


def test_a_pipeline_sends_neither_mask_nor_bias(some):
    kinds, off = some["baichuan"]["pipeline"]
    assert kinds == ["Tensor", "Tensor"] and off < 2e-6


@families
def test_packed_rows_by_their_ends_have_the_numbers_of_the_mask(corrected, name):
    assert ("row ends" in corrected) == FAMILIES[name].row_ends == (name in ("llama", "baichuan", "qwen2", "qwen3"))
    if FAMILIES[name].row_ends:
        by_ends, without = corrected["row ends"]
        assert by_ends < 2e-6 and without > 1e-3


def test_the_bias_of_the_columns_is_alibis(ranks):
    """Nothing but float32's rounding of a slope. The plan counts as many columns."""
    found = ranks(1, f"{RANKS}:alibi_columns")[0]
    assert found.pop("columns") == ALIBI_COLUMNS
    for dtype, (largest, off) in found.items():
        assert math.isclose(largest, 16383 * 2**-0.125, rel_tol=1e-4), dtype
        assert off <= 2**-24 * largest, dtype

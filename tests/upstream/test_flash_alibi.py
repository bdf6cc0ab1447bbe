"""Baichuan-13B and Bloom under flash attention: their bias is kept, by every kernel, and no mask carries it."""

import math

import pytest

from launch.families.parameters import ALIBI_COLUMNS

DIFFERENCES = "tests.upstream.llama_flash_ranks:differences"
MASKS = "tests.upstream.llama_flash_ranks:masks_given"
COLUMNS = "tests.upstream.alibi_ranks:bias_of_columns"
FAMILIES = ("baichuan", "bloom")
CARDS = {"CPU": None, "A100": [8, 0], "V100": [7, 0]}
CASES = ("causal", "left padded", "packed", "prefix", "one after cached")
KERNEL = {"CPU": [], "A100": ["flash"], "V100": ["memory efficient"]}
MASKED = ("left padded", "packed", "one after cached")  # 13, 9 and 10 keys are none of the memory efficient kernel's
LENGTH = 13


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("name", FAMILIES)
def test_is_that_of_exact_attention(ranks, name, card):
    found = ranks(1, DIFFERENCES, name, CARDS[card], True)[0]
    for case in CASES:
        difference, taken, error = found[case]
        assert (case, error) == (case, "")
        assert difference < 1e-5, case
        plain = card == "V100" and case in MASKED
        assert taken == (["math"] if plain else KERNEL[card]), case


def test_upstream_refuses_or_loses_the_bias_of_baichuan(ranks):
    on_a100 = ranks(1, DIFFERENCES, "baichuan", CARDS["A100"], False)[0]
    assert on_a100["causal"] == [None, [], "When attn_mask is set, causal can not be true."]
    on_cpu = ranks(1, DIFFERENCES, "baichuan", None, False)[0]
    assert on_cpu["causal"][0] > 0.05


@pytest.mark.parametrize("name", FAMILIES)
def test_a_mask_is_made_where_one_is_given_once_for_all_heads(ranks, name):
    assert ranks(1, MASKS, name, True)[0] == {"causal": [None], "packed": [[2, 1, LENGTH, LENGTH]]}


def test_upstream_makes_a_mask_for_each_head(ranks):
    for name in FAMILIES:
        assert ranks(1, MASKS, name, False)[0]["causal"] == [[2, 4, LENGTH, LENGTH]]


def test_a_pipeline_sends_neither_mask_nor_bias(ranks):
    [[kinds, off]] = ranks(1, "tests.upstream.alibi_ranks:pipeline")
    assert kinds == ["Tensor", "Tensor"] and off < 2e-6


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_the_bias_of_the_columns_is_alibis(ranks, dtype):
    """40 heads of 128 as Baichuan-13B has them, 16,384 keys: nothing but float32's rounding of a slope."""
    [[largest, off]] = ranks(1, COLUMNS, dtype, 16384)
    assert math.isclose(largest, 16383 * 2**-0.125, rel_tol=1e-4)
    assert off <= 2**-24 * largest


def test_the_plan_counts_as_many_columns(ranks):
    assert ranks(1, "tests.upstream.alibi_ranks:columns")[0] == ALIBI_COLUMNS

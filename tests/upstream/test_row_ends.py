"""Packed rows by the ends of their samples, as paddlenlp's code takes them for FlashMask, against a mask of each."""

import pytest

from launch.families.registry import FAMILIES

FAMILIES_WITH_IT = [name for name, family in FAMILIES.items() if family.row_ends]


def test_which_families():
    assert set(FAMILIES_WITH_IT) == {"llama", "baichuan", "qwen2", "qwen3"}


@pytest.mark.parametrize("name", FAMILIES_WITH_IT)
def test_ends_give_the_numbers_of_the_mask(ranks, name):
    [[by_ends, without]] = ranks(1, "tests.upstream.llama_flash_ranks:by_row_ends", name)
    assert by_ends < 2e-6 and without > 1e-3

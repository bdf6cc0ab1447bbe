"""Rows of tokens beside a LoRA: computed as by a base whose weights hold them."""

import pytest

from launch.families.registry import FAMILIES

NAMES = [
    name for name, family in FAMILIES.items() if family.attention == "causal" and not family.head.reads_length_first
]
# Sums of 64 numbers in float32: 64 x 2^-24, and of up to 64 tokens and two layers in a gradient.
BOUNDS = {"loss": 4e-6, "gradient": 2e-5, "gradient of B": 2e-5, "off": 0.0, "logits": 4e-6, "shared": 0.0}


@pytest.mark.parametrize("names", [["ernie4_5"], pytest.param(NAMES, id="all", marks=pytest.mark.long)])
def test_losses_gradients_and_logits_are_those_of_weights_that_hold_the_rows(ranks, tmp_path, names):
    [found] = ranks(1, "tests.adapters.token_rows_ranks:against_whole_weights", names, str(tmp_path))
    for name in names:
        over = {key: value for key, value in found[name].items() if not value <= BOUNDS[key]}
        assert found[name].keys() == BOUNDS.keys() and not over, name

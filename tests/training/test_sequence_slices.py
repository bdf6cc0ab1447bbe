"""MLPs and norms in slices give the losses and gradients of whole ones. Their memory: tests/plan/test_accuracy.py."""

import pytest

from launch.families.arithmetic import tokens_of_slice
from launch.families.registry import FAMILIES

RANKS = "tests.training.sequence_slices_ranks"
QUICK = ["llama", "qwen3"]
OTHERS = [name for name, family in FAMILIES.items() if family.forward.slices_sequence and name not in QUICK]


@pytest.mark.parametrize("names", [QUICK, pytest.param(OTHERS, marks=pytest.mark.long)], ids=["two", "others"])
def test_losses_and_gradients_are_those_of_whole_layers(ranks, names):
    """In slices, also within recomputed layers, and with their inputs in host memory, to the bit of each other."""
    (found,) = ranks(1, f"{RANKS}:compare", names)
    for name, (sliced, *recomputed) in found.items():
        assert sliced <= 1e-6, name
        assert recomputed == [sliced, sliced], name


def test_a_slice_is_computed_again_with_its_random_numbers_and_summed_in_float32(ranks):
    (found,) = ranks(1, f"{RANKS}:dropout_and_sums")
    assert found == [[True, True], [512, 512]]


def test_the_slices_of_a_flag():
    assert [tokens_of_slice(flag, 20_000) for flag in ("off", "auto", "3", "20001")] == [20_000, 8192, 6667, 1]
    assert OTHERS == ["baichuan", "qwen2", "mistral", "ernie4_5"]

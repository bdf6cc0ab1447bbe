"""Many texts in one row get the logits of each alone, on one process and divided over two."""

from collections.abc import Iterable

import numpy as np
import pytest

from launch.families.registry import FAMILIES
from tests.families.saved import saved_families
from tests.families.test_families import groups

MODULE = "tests.generation.packed_ranks"
# What changes how paddlenlp's attention computes.
CHANGED = [
    ("bloom", {"hidden_size": 48, "n_head": 6}),  # slopes of no power of two
    ("bloom", {"apply_residual_connection_post_layernorm": True}),
    ("chatglm_v2", {"multi_query_group_num": 1}),
    ("chatglm_v2", {"apply_query_key_layer_scaling": False, "attention_softmax_in_fp32": False}),
]
# Relative to the largest logit: float32 rounds each addition by up to 2**-24, and a layer's longest sum has 176 terms.
BOUND = 176 * 2.0**-24
STRATEGIES = "use_long_sequence_strategies"


@pytest.fixture(scope="module")
def directory(ranks) -> str:
    return saved_families(ranks)


@pytest.fixture(scope="module")
def one_process(ranks, directory, group):
    return ranks(1, f"{MODULE}:saved", directory, causal(group), 1)[0]


def causal(names: Iterable[str]) -> list[str]:
    return [name for name in names if FAMILIES[name].attention == "causal"]


def difference(found: list, expected: list) -> float:
    """The largest, relative to the largest logit."""
    return float(np.abs(np.subtract(found, expected)).max() / np.abs(expected).max())


@groups
def test_a_row_gives_each_text_the_logits_that_it_has_alone(one_process, group):
    for name, (row, alone) in one_process.items():
        assert difference(row, alone) < BOUND, name
        assert difference(alone[0], alone[1]) > 0.1, name


def test_a_row_does_so_whatever_the_configuration(ranks):
    [found] = ranks(1, f"{MODULE}:changed", CHANGED)
    for (name, changes), (row, alone) in zip(CHANGED, found, strict=True):
        assert difference(row, alone) < BOUND, (name, changes)


@groups
def test_two_processes_give_the_logits_of_one(ranks, directory, one_process, group):
    first, second = ranks(2, f"{MODULE}:saved", directory, causal(group), 2)
    assert first == second
    for name in causal(group):
        assert difference(first[name][0], one_process[name][0]) < BOUND, name


def test_layers_of_paddlenlp_that_count_in_the_row_are_not_packed(ranks):
    for name in ("bloom", "chatglm_v2", "llama"):
        ways = [{STRATEGIES: value} for value in (False, True)]
        assert ranks(1, f"{MODULE}:packed_with", name, ways)[0] == [True, False]

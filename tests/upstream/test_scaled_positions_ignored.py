"""Models scale positions as their config.json says, in every way in which they are called."""

import numpy as np
import pytest

from tests.families.published import YARN_WITH_ALL
from tests.families.reference import scaled

RANKS = "tests.upstream.scaled_positions_ranks"
NAMES = ("llama", "qwen2", "qwen3")
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LLAMAS_DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 8}
LENGTH = 30


def expected(block: dict, size: int, theta: float, length: int) -> np.ndarray:
    """[2, length, size]: cosines and sines."""
    frequencies, factor = scaled({"rope_scaling": block}, size, theta, length)
    angles = np.tile(np.arange(length)[:, None] * frequencies, 2)
    return factor * np.stack([np.cos(angles), np.sin(angles)])


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_has_them(ranks, name):
    """One that is rounded to bfloat16 once it is made computes them as exactly."""
    [found] = ranks(1, f"{RANKS}:tables", name, YARN_WITH_ALL, LENGTH)
    tables = expected(YARN_WITH_ALL, found["size"], found["theta"], LENGTH)
    assert np.abs(np.array(found["tables"]) - tables).max() <= 1e-6
    assert np.abs(np.array(found["after a cast"]) - tables).max() <= 1e-6
    assert found["shared"] and found["rows"] == 64 and found["buffers"] == []


def test_dynamic_ones_follow_each_length_and_go_back(ranks):
    [found] = ranks(1, f"{RANKS}:tables_of_lengths", LLAMAS_DYNAMIC, [6, 8, 20, 21, 6])
    for length, tables in found:
        assert np.abs(np.array(tables) - expected(LLAMAS_DYNAMIC, 16, 10000.0, length)).max() <= 1e-6


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_upstream_ignores_yarn(ranks, name):
    [found] = ranks(1, f"{RANKS}:tables", name, YARN, LENGTH, False)
    plain = expected({}, found["size"], found["theta"], LENGTH)
    assert np.abs(np.array(found["tables"]) - plain).max() <= 1e-5


def test_packed_samples_are_those_alone(ranks):
    [found] = ranks(1, f"{RANKS}:packed_with", "qwen2", YARN)
    assert found["apart"] <= 2e-6
    assert (found["changed"] > 1e-4, found["leaked"]) == (True, 0)


def test_evaluations_put_no_requests_into_a_row_that_its_length_scales(ranks):
    assert ranks(1, f"{RANKS}:share_prefixes", [YARN, LLAMAS_DYNAMIC]) == [[True, False]]


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_those_without_a_cache(ranks, name):
    """Dynamic ones need not be: keys stay as they were turned when they came, as in transformers."""
    [(answers, likely)] = ranks(1, f"{RANKS}:answers", name, YARN)
    assert answers == likely

"""Sharding stages 2 and 3 on processes of a CPU. (Stage 1 has no gap of its own.)"""

import numpy as np
import pytest

CASES = "tests.rehearsal.sharding_ranks"


def test_stage2_keeps_its_parameters_in_a_buffer(ranks):
    for found in ranks(2, f"{CASES}:stage2_parameters"):
        assert found == {"equal": [True] * 6, "shapes": [True] * 6, "in buffer": [True] * 6}


@pytest.mark.long
def test_stage3_keeps_small_parameters_whole(ranks):
    """The largest of these has 96 elements; upstream's limit is 2**20. Above 20 are 96 and 64, not 16, 16, 16 and 4."""
    assert ranks(2, f"{CASES}:slices", None) == [[False] * 6] * 2
    assert ranks(2, f"{CASES}:slices", 20) == [[True, True, False, False, False, False]] * 2


@pytest.mark.parametrize(
    "level, numel",
    [
        ("os_g", None),
        ("p_g_os", 20),
        *(pytest.param(level, None, marks=pytest.mark.long) for level in ("os", "p_g_os")),
    ],
)
def test_clipped_steps_give_the_weights_of_one_process(ranks, level, numel):
    (expected,) = ranks(1, f"{CASES}:train", None)
    for found in ranks(2, f"{CASES}:train", level, numel):
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=2e-6)

"""AdamW with moments in 16 bits, beside AdamW in float32."""

import numpy as np
import pytest

STEPS = 1000
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def trained(ranks) -> dict[str, dict]:
    """What each kind of optimizer comes to."""
    kinds = ["adamw", "upstream", "corrected", "nearest"]
    [found] = ranks(1, "tests.training.narrow_moments_ranks:train_all", kinds, STEPS)
    return {
        kind: {name: np.array(one) if name != "dtype" else one for name, one in numbers.items()}
        for kind, numbers in found.items()
    }


def ratio(found: dict, expected: dict) -> np.ndarray:
    """Of second moments, where there were gradients."""
    return found["moment2"][:, :-1] / expected["moment2"][:, :-1]


def test_upstream_keeps_32_bits_in_a_float32_run(trained):
    assert [trained[kind]["dtype"] for kind in ("upstream", "corrected")] == ["paddle.float32", "paddle.bfloat16"]


def test_a_second_moment_falls_with_the_gradients(trained):
    """By 0.1 % a step, of which the nearest number of 8 bits makes nothing: as soon as that is less than half a unit,
    at twice what it should be and more, it stands still."""
    expected = trained["adamw"]
    assert np.abs(ratio(trained["corrected"], expected).mean() - 1) < 0.01
    assert np.abs(ratio(trained["corrected"], expected) - 1).max() < 0.25
    assert ratio(trained["nearest"], expected).mean() > 2


def test_weights_are_those_of_float32_moments(trained):
    expected = trained["adamw"]["weight"]
    difference = np.abs(trained["corrected"]["weight"] - expected)
    assert difference.max() < 5e-4 and difference.mean() < 1e-4  # of 1,000 steps of up to 1e-3
    assert np.abs(trained["nearest"]["weight"] - expected).mean() > 3 * difference.mean()


def test_what_has_no_gradient_stays(trained):
    found = trained["corrected"]
    for name in ("moment1", "moment2"):
        assert (found[name][:, -1] == 0).all()
    assert (found["weight"][:, -1] == trained["adamw"]["weight"][:, -1]).all()

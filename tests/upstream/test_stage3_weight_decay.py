"""Weight decay of the parameters that stage 3 slices."""

import pytest

STEP = "tests.upstream.stage3_weight_decay_ranks:step_without_gradient"


@pytest.mark.parametrize(("corrected", "weight"), [(False, 1.0), (True, 0.9)], ids=["upstream", "corrected"])
def test_sliced_weight_decays(ranks, corrected, weight):
    """1 - 0.5 x 0.2 where it decays; the bias, which is not said to decay, stays."""
    for found in ranks(2, STEP, corrected):
        assert found["sliced"] == [True, False]
        assert found["bias"] == [1.0] * 4
        assert [value for row in found["weight"] for value in row] == pytest.approx([weight] * 16, abs=1e-6)

"""Clipping that keeps the gradient norm, beside Paddle's own on the same gradients."""

import numpy as np
import pytest

COMPARE = "tests.training.clip_ranks:compare"


@pytest.mark.parametrize("limit", [0.5, 1e6], ids=["clipped", "below the limit"])
@pytest.mark.parametrize("sharded", [False, True], ids=["plain", "sharded"])
def test_norm_and_gradients_are_upstreams(ranks, sharded, limit):
    for found in ranks(2 if sharded else 1, COMPARE, limit, sharded):
        assert found["norm"] == pytest.approx(found["expected"], rel=1e-6)
        assert found["reads"] == 2, "offload brings each gradient to the device once to read and once to write"
        assert found["modules"] == [True, True]
        # Upstream's sharded clip sums up squares by another kernel.
        tolerance = 1e-6 if sharded else 0
        assert len(found["ours"]) == len(found["upstream"]) == 5
        for ours, upstreams in zip(found["ours"], found["upstream"], strict=True):
            np.testing.assert_allclose(ours, upstreams, rtol=tolerance, atol=0)

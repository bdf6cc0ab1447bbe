"""Gradients come back in the shapes of their own micro batches."""

import pytest

EXPECT = "tests.upstream.pipeline_gradient_shapes_ranks:expected_gradients"


@pytest.mark.parametrize(("corrected", "tokens"), [(False, [3, 4, 9]), (True, [5, 3, 4])], ids=["upstream", "corrected"])
def test_a_stage_expects_the_gradient_of_the_oldest_micro_batch(ranks, corrected, tokens):
    assert ranks(1, EXPECT, corrected) == [[[1, length, 2] for length in tokens]]

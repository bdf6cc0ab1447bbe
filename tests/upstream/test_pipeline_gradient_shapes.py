"""Gradients come back in the shapes of their own micro batches."""

import pytest

EXPECT = "tests.upstream.pipeline_gradient_shapes_ranks:expected_gradients"
CASES = [(False, [3, 4, 9]), (True, [5, 3, 4])]


@pytest.mark.parametrize(("corrected", "tokens"), CASES, ids=["upstream", "corrected"])
def test_a_stage_expects_the_gradient_of_the_oldest_micro_batch(ranks, corrected, tokens):
    assert ranks(1, EXPECT, corrected) == [[[1, length, 2] for length in tokens]]

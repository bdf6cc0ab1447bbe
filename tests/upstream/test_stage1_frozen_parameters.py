"""Frozen parameters under sharding stage 1, beside adapters: no gradients of zeros."""

GRADIENTS = "tests.upstream.stage1_frozen_ranks:gradients"
MEAN = 1.5  # of 1 and 2, on the rank that updates the weight


def test_have_no_gradient(ranks):
    found = ranks(2, GRADIENTS, True)
    assert [frozen for frozen, _ in found] == [None, None]
    assert MEAN in [trained for _, trained in found]


def test_upstream_makes_zeros(ranks):
    assert [frozen for frozen, _ in ranks(2, GRADIENTS, False)] == [0.0, 0.0]

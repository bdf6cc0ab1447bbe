"""Operators of tensor parallelism: values and gradients of all ranks against one process in NumPy."""

import numpy as np
import pytest

CASES = "tests.rehearsal.tensor_parallel_ranks"
IGNORED = -100


def whole_numbers(*shape: int) -> np.ndarray:
    return np.random.RandomState(0).randint(-8, 8, shape).astype("float32")


def test_identity_sums_the_gradients(ranks):
    x, weights = whole_numbers(3, 4), whole_numbers(2, 3, 4)
    for found in ranks(2, f"{CASES}:identity", x.tolist(), weights.tolist()):
        assert found == {"value": x.tolist(), "gradient": weights.sum(axis=0).tolist()}


@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.long)])
def test_concat(ranks, n):
    x, weight = whole_numbers(2, 3, 8), 1 + whole_numbers(2, 3, 8)
    for rank, found in enumerate(ranks(n, f"{CASES}:concat", x.tolist(), weight.tolist())):
        assert found == {"value": x.tolist(), "gradient": np.split(weight, n, axis=-1)[rank].tolist()}


def test_split(ranks):
    x, weight = whole_numbers(8), 1 + whole_numbers(8)
    for rank, found in enumerate(ranks(2, f"{CASES}:split", x.tolist(), weight.tolist())):
        assert found == {"value": np.split(x, 2)[rank].tolist(), "gradient": weight.tolist()}


@pytest.mark.parametrize(
    "n, label_has_last_axis, offset",
    [(2, True, 1e4), *(pytest.param(*case, marks=pytest.mark.long) for case in ((2, False, 0.0), (4, False, 1e4)))],
)
def test_cross_entropy(ranks, n, label_has_last_axis, offset):
    """Labels in every rank's part of the vocabulary, two of them ignored."""
    random = np.random.RandomState(1)
    logits = np.float32(random.randn(2, 5, 8) + offset)
    label = np.array([[0, 7, 3, IGNORED, 4], [2, IGNORED, 5, 6, 1]])
    weight = np.float32(random.randn(2, 5))

    exact = logits.astype("float64")
    exponentials = np.exp(exact - exact.max(axis=-1, keepdims=True))
    softmax = exponentials / exponentials.sum(axis=-1, keepdims=True)
    counted = label != IGNORED
    one_hot = np.eye(8)[np.where(counted, label, 0)]
    loss = -np.log((softmax * one_hot).sum(axis=-1)) * counted
    gradient = (softmax - one_hot) * (weight * counted)[..., None]

    given_label = label[..., None] if label_has_last_axis else label
    arguments = (logits.tolist(), given_label.tolist(), weight.tolist())
    for rank, found in enumerate(ranks(n, f"{CASES}:cross_entropy", *arguments)):
        np.testing.assert_allclose(found["loss"], loss, atol=2e-6)
        np.testing.assert_allclose(found["softmax"], np.split(softmax, n, axis=-1)[rank], atol=1e-6)
        np.testing.assert_allclose(found["gradient"], np.split(gradient, n, axis=-1)[rank], atol=1e-6)

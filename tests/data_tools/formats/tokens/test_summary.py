"""Token counts and the unigram bar."""

import math

import numpy as np
import pytest

from data_tools.formats.tokens import indexed
from data_tools.formats.tokens.indexed import IndexedDataset
from data_tools.formats.tokens.summary import token_counts, unigram_cross_entropy


def test_counts_and_cross_entropy_in_nats_over_blocks(write, documents, monkeypatch):
    monkeypatch.setattr(indexed, "BLOCK_TOKENS", 3)
    assert token_counts(IndexedDataset(write("a", [[1, 1, 4], [0], [1, 4]]))).tolist() == [1, 3, 0, 0, 2]
    assert unigram_cross_entropy(IndexedDataset(write("a", [range(8)] * 3))) == pytest.approx(math.log(8), rel=1e-12)
    skewed = IndexedDataset(write("b", [[5, 5, 5, 9]]))
    assert unigram_cross_entropy(skewed) == pytest.approx(0.75 * math.log(4 / 3) + 0.25 * math.log(4), rel=1e-12)
    heldout = IndexedDataset(write("c", documents[:20]))
    counts = token_counts(heldout)
    other = np.bincount(np.concatenate(documents[20:]), minlength=counts.size) + 1.0
    cross_entropy = -(counts * np.log(other / other.sum())[: counts.size]).sum() / counts.sum()
    assert unigram_cross_entropy(heldout) < cross_entropy, "no unigram model of other text does better"

"""What a corpus says about itself: token counts, and the loss that no model of single tokens can beat."""

import numpy as np

from data_tools.formats.tokens.indexed import IndexedDataset


def token_counts(corpus: IndexedDataset) -> np.ndarray:
    """int64[largest id + 1]: how often each id occurs."""
    counts = np.zeros(corpus.largest_id() + 1, dtype=np.int64)
    for block in corpus.blocks():
        counts += np.bincount(block, minlength=counts.size)
    return counts


def unigram_cross_entropy(corpus: IndexedDataset) -> float:
    """Nats a token that the best unigram model of this very text needs: -sum p ln p over its own token
    frequencies.

    For held-out text this is the strictest bar of its kind: any unigram model estimated elsewhere (on the
    training text, with any smoothing) has a higher cross-entropy on it. A loss below it shows that context is
    used.
    """
    counts = token_counts(corpus)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())

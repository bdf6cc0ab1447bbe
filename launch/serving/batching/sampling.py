"""One token out of logits, with random numbers of the row's own: a batch's other rows change nothing."""

import numpy as np

from launch.serving.batching.request import Options


def random_of(options: Options, number: int) -> np.random.Generator:
    """The random numbers of the answer with this number among those of a request."""
    return np.random.default_rng(None if options.seed is None else [options.seed, number])


def draw(logits: np.ndarray, options: Options, random: np.random.Generator) -> int:
    """logits: [vocabulary]. temperature first, then the top_k most likely ones, then of these as few of the most likely
    ones as have the probability top_p together."""
    below = logits.astype(np.float64) - logits.max()
    with np.errstate(over="ignore"):  # a temperature near 0 leaves the most likely one alone
        probabilities = np.exp(below / options.temperature)
    ids = np.arange(len(probabilities))
    if 0 < options.top_k < len(ids):
        ids = np.sort(np.argpartition(-probabilities, options.top_k - 1)[: options.top_k])
    if options.top_p < 1:
        ids = ids[np.argsort(-probabilities[ids], kind="stable")]
        before = np.cumsum(probabilities[ids]) - probabilities[ids]
        ids = ids[before < options.top_p * probabilities[ids].sum()]
    cumulative = np.cumsum(probabilities[ids])
    place = np.searchsorted(cumulative, random.random() * cumulative[-1], side="right")
    return int(ids[min(place, len(ids) - 1)])

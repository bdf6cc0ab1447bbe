"""Drawing a token: by temperature, top_k and top_p, and with the probability that it had then."""

from typing import NamedTuple, Protocol

import numpy as np


class DrawingRule(Protocol):
    """How tokens are drawn. temperature 0: the most likely one; top_k 0 or -1, and top_p 1: among all."""

    @property
    def temperature(self) -> float:
        """By which logits are divided."""
        ...

    @property
    def top_k(self) -> int:
        """The number of the most likely tokens that are left."""
        ...

    @property
    def top_p(self) -> float:
        """Of these are left the fewest whose probabilities add up to it."""
        ...


class Drawn(NamedTuple):
    """A drawn token.

    Attributes:
        logp: The logarithm of its probability in nats, among the kept ids at the temperature.
        kept: The ids that it was drawn from, ascending or the most likely first; None: all.
    """

    token: int
    logp: float
    kept: np.ndarray | None


def draw_scored(logits: np.ndarray, options: DrawingRule, random: np.random.Generator) -> Drawn:
    """Return a drawn token with its probability. logits: [vocabulary].

    The temperature comes first; then the top_k most likely tokens are kept, then the fewest of these whose
    probabilities add up to top_p. Sums are in float64.
    """
    below = logits.astype(np.float64) - logits.max()
    with np.errstate(over="ignore"):  # a temperature near 0 leaves only the most likely token
        below = below / options.temperature
        probabilities = np.exp(below)
    ids = None
    if 0 < options.top_k < len(probabilities):
        ids = np.sort(np.argpartition(-probabilities, options.top_k - 1)[: options.top_k])
    if options.top_p < 1:
        ids = np.arange(len(probabilities)) if ids is None else ids
        ids = ids[np.argsort(-probabilities[ids], kind="stable")]
        before = np.cumsum(probabilities[ids]) - probabilities[ids]
        ids = ids[before < options.top_p * probabilities[ids].sum()]
    cumulative = np.cumsum(probabilities if ids is None else probabilities[ids])
    place = min(np.searchsorted(cumulative, random.random() * cumulative[-1], side="right"), len(cumulative) - 1)
    token = int(place if ids is None else ids[place])
    return Drawn(token, float(below[token] - np.log(cumulative[-1])), ids)


def draw(logits: np.ndarray, options: DrawingRule, random: np.random.Generator) -> int:
    """Return a drawn token id, as draw_scored does."""
    return draw_scored(logits, options, random).token

"""Requests that begin alike share what they have in common: a batch holds each token after the same beginning once.

The tokens of a batch form a tree, in which each request is a path from the root. Written depth first, a token is seen
by those of the part of the row that its subtree takes, and by no other: exactly what packed samples say by the end of
each token's sample, with ends that differ within a sample. Examples before all questions of a subject are so computed
once, and a question once for all its choices.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ScoredText:
    """A text to score.

    Attributes:
        ids: Of the whole text.
        start: The first id that is scored; at least one id comes before it.
        cut: Whether its beginning was left out, because the model has fewer positions.
    """

    ids: tuple[int, ...]
    start: int
    cut: bool = False


@dataclass(frozen=True)
class PackedRow:
    """Tokens that a model reads at once, and the places of its output that are used.

    Attributes:
        ids, positions: int64 [tokens].
        ends: int32 [tokens], behind the last token that sees this one.
        requests: Numbers of the requests.
        nodes: For each of them the tokens whose logits give the likelihood of the next scored id.
    """

    ids: np.ndarray
    positions: np.ndarray
    ends: np.ndarray
    requests: list[int]
    nodes: list[list[int]]

    def mask(self) -> np.ndarray:
        """Return bool [1, 1, tokens, tokens]: whether the token of a row sees the token of a column."""
        tokens = np.arange(len(self.ids))
        return ((tokens[None] <= tokens[:, None]) & (tokens[:, None] < self.ends[None]))[None, None]


def rows(requests: list[ScoredText], limit: int, share: bool) -> Iterator[PackedRow]:
    """Yield all requests, in rows of at most `limit` tokens; a longer one has a row to itself.

    Args:
        requests: To score.
        limit: Tokens of a row.
        share: Whether requests that begin alike share a row, for which the model must take positions and masks of
            packed rows; else each request has its own, the longest first.
    """
    order = list(range(len(requests)))
    if share:
        order.sort(key=lambda number: requests[number].ids)
    else:
        order.sort(key=lambda number: len(requests[number].ids), reverse=True)
    tree = _Tree()
    for number in order:
        request = requests[number]
        if tree.requests and (not share or tree.size_with(request) > limit):
            yield tree.row()
            tree = _Tree()
        tree.add(number, request)
    if tree.requests:
        yield tree.row()


class _Tree:
    """Written depth first while sorted requests come in: only the path to the newest token can still grow."""

    def __init__(self):
        self.ids: list[int] = []
        self.positions: list[int] = []
        self.ends: list[int] = []
        self.path: list[int] = []  # the tokens of the newest request, from the root
        self.requests: list[int] = []
        self.nodes: list[list[int]] = []

    def _common(self, given: tuple[int, ...]) -> int:
        common = 0
        for token, wanted in zip(self.path, given, strict=False):
            if self.ids[token] != wanted:
                break
            common += 1
        return common

    def size_with(self, request: ScoredText) -> int:
        given = request.ids[:-1]
        return len(self.ids) + len(given) - self._common(given)

    def add(self, number: int, request: ScoredText) -> None:
        given = request.ids[:-1]  # the last id is predicted, and predicts nothing
        common = self._common(given)
        self._close(common)
        for position in range(common, len(given)):
            self.path.append(len(self.ids))
            self.ids.append(given[position])
            self.positions.append(position)
            self.ends.append(0)
        self.requests.append(number)
        self.nodes.append(self.path[request.start - 1 :])

    def _close(self, length: int) -> None:
        """Close the tokens of the path behind `length`: nothing behind this place sees them."""
        for token in self.path[length:]:
            self.ends[token] = len(self.ids)
        del self.path[length:]

    def row(self) -> PackedRow:
        self._close(0)
        ids, positions = (np.array(values, dtype=np.int64) for values in (self.ids, self.positions))
        return PackedRow(ids, positions, np.array(self.ends, dtype=np.int32), self.requests, self.nodes)

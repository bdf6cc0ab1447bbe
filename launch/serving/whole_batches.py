"""What the engine answers rows with: which of the waiting ones it takes, and a step at a time.

    batch.take(waiting)    # rows that have room now
    batch.step()           # a token for each of them
    batch.rows             # in work

ContinuousBatch (launch/serving/continuous_batch.py) refills places at once. WholeBatches answers rows of one model to
the end before it takes others: for models whose texts cannot be computed in one row (launch/generation/packed.py).
"""

import math
from collections.abc import Iterable, Mapping
from typing import Protocol

from launch.serving.request import Row


class Batch(Protocol):
    """A batch of rows.

    Attributes:
        description: For people.
        gathers: Seconds for which the first row of an idle engine waits for others that come with it.
    """

    description: str
    gathers: float

    @property
    def rows(self) -> list[Row]:
        """Rows being generated now."""
        ...

    def room(self, model: str) -> float:
        """Return the tokens of a prompt and its answer that there is memory for; infinity where it is not limited."""
        ...

    def longest_scored(self, model: str) -> float:
        """Return the tokens of a prompt whose likelihoods there is memory for."""
        ...

    def take(self, waiting: Iterable[Row]) -> list[Row]:
        """Take rows, in their order, as far as there is room. At least one where none is in work."""
        ...

    def step(self) -> None:
        """Put a token to each row whose prompt is computed. Rows that are done leave."""
        ...

    def clear(self) -> None:
        """Forget the rows."""
        ...


class WholeBatches:
    """Rows of one group that wait together and go together.

    They are the first one, and the rows behind it, up to the size of a batch, and as far as the longest prompt, to
    which all are padded, and the longest answer fit into the model's positions.

    Attributes:
        models: By name, whose answer(rows) calls put() of each row until all are done.
    """

    description = "answered batch by batch: the next one begins when the longest answer has ended"
    gathers = 0.005

    def __init__(self, models: Mapping, largest: int):
        self.models = models
        self.largest = largest
        self.rows: list[Row] = []

    def room(self, model: str) -> float:
        """Return the tokens of a prompt and its answer, which are not limited."""
        return math.inf

    def longest_scored(self, model: str) -> float:
        """Return the longest prompt whose likelihoods can be computed."""
        return self.models[model].longest_scored

    def take(self, waiting: Iterable[Row]) -> list[Row]:
        """Take waiting rows of one group, and return them."""
        if self.rows:
            return []
        prompt = answer = 0
        for row in waiting:
            padded, longest = max(prompt, len(row.prompt)), max(answer, row.max_tokens)
            fits = not self.rows or padded + longest <= row.positions and len(self.rows) < self.largest
            if fits and (not self.rows or row.group == self.rows[0].group):
                self.rows.append(row)
                prompt, answer = padded, longest
        return list(self.rows)

    def step(self) -> None:
        """Answer the rows of the batch."""
        self.models[self.rows[0].group[0]].answer(self.rows)
        self.rows = []

    def clear(self) -> None:
        """Drop all rows."""
        self.rows = []

"""Batches whose rows come and go one by one.

A place is refilled at once, prompts are computed in chunks between the tokens of others, and a base and its adapters
answer together.
"""

from collections.abc import Iterable, Mapping
from itertools import count

import paddle

from launch.adapters.adapter_files import LoRAModel
from launch.adapters.lora_rows import runs_alone
from launch.generation.packed import packs
from launch.generation.packed_texts import ComputedPart
from launch.serving.followers import ShardedTexts
from launch.serving.likelihoods import likelihoods
from launch.serving.models import fail_damaged
from launch.serving.request import Finish, Likelihood, Row
from launch.serving.texts import Texts
from launch.serving.whole_batches import Batch, WholeBatches


class ContinuousBatch:
    """A batch whose rows come and go one by one.

    Attributes:
        models: By name (launch/serving/models.py: Served), the base first.
        largest: The largest number of rows.
    """

    gathers = 0.0

    def __init__(self, models: Mapping, texts: Texts | ShardedTexts, largest: int):
        self.models = models
        self.texts = texts
        self.largest = largest
        self.known_ids = next(iter(models.values())).predictor.known_ids
        self.description = f"refilled at once; keys and values: {texts.tokens:,} tokens of {texts.token_bytes:,} bytes"
        self.description += "; compiled operators" if texts.compiled else ""
        self.numbers = count()
        self.working: dict[int, Row] = {}  # by the numbers of their texts
        self.scores: dict[int, list[Likelihood]] = {}  # of prompts that are computed in part
        self.refused: Row | None = None  # has no room until another row leaves

    def clear(self) -> None:
        """Drop all rows."""
        self.texts.clear()
        self.working.clear()
        self.scores.clear()
        self.refused = None

    @property
    def rows(self) -> list[Row]:
        """The rows being generated now."""
        return list(self.working.values())

    def room(self, model: str) -> float:
        """Return the tokens of a prompt and its answer that there is memory for."""
        return self.texts.tokens - self.texts.prefix_tokens(model)

    def longest_scored(self, model: str) -> float:
        """Return the longest prompt whose likelihoods can be computed."""
        return self.room(model)  # a prompt is scored in chunks, as it is computed

    def take(self, waiting: Iterable[Row]) -> list[Row]:
        """Take waiting rows, in their order, while there is room, and return them."""
        taken = []
        for row in waiting:
            if len(self.working) == self.largest or row is self.refused or not self._add(row):
                break  # and those behind it wait, too: a long text would otherwise never find room
            taken.append(row)
        return taken

    def _add(self, row: Row) -> bool:
        number, ids = next(self.numbers), row.prompt + row.tokens
        scored = len(row.prompt) if row.wants_scores else 0
        if not self.texts.add(number, ids, len(row.prompt) + row.max_tokens, row.group[0], scored):
            self.refused = row
            return False
        self.working[number] = row
        if scored:
            self.scores[number] = [Likelihood(row.prompt[0], None)]
        return True

    @paddle.no_grad()
    def step(self) -> None:
        """Compute the next tokens of all rows."""
        self._leave([number for number, row in self.working.items() if row.done])
        if not self.working:
            return
        parts, logits = self.texts.compute()
        rows = [self.working[part.number] for part in parts for _ in part.rows]
        failed = set(fail_damaged(rows, logits, self.known_ids))
        lost = [part.number for part in parts if self.working[part.number] in failed]
        self.texts.settle(lost)
        for number in lost:
            self._forget(number)
        parts = [part for part in parts if part.number in self.working]
        for part in parts:
            if part.number in self.scores:
                self._score(part, logits[part.rows.start : part.rows.stop])
        self._choose([part for part in parts if part.complete], logits)

    def _leave(self, numbers: list[int]) -> None:
        if numbers:
            self.texts.remove(numbers)
        for number in numbers:
            self._forget(number)

    def _forget(self, number: int) -> None:
        del self.working[number]
        self.scores.pop(number, None)
        self.refused = None

    def _score(self, part: ComputedPart, logits: paddle.Tensor) -> None:
        """Tell a row the likelihoods of its prompt when they are all there. logits: behind each token of the part."""
        row, found = self.working[part.number], self.scores[part.number]
        following = row.prompt[part.start + 1 : part.start + part.count + 1]
        if following:
            top = row.options.scores_prompt or 0
            found += likelihoods(logits[: len(following)], following, top, self.known_ids)
        if len(found) == len(row.prompt):
            row.emit_scores(self.scores.pop(part.number))
            if not row.max_tokens:
                row.finish(Finish.LENGTH)

    def _choose(self, parts: list[ComputedPart], logits: paddle.Tensor) -> None:
        """Choose the next token of each text that is computed to its end."""
        appended = []
        for name, served in self.models.items():
            own = [part for part in parts if self.working[part.number].group[0] == name]
            rows = [self.working[part.number] for part in own]
            if not own:
                continue
            last = [part.rows[-1] for part in own]
            chosen = logits if last == list(range(logits.shape[0])) else logits.index_select(paddle.to_tensor(last))
            before = [len(row.tokens) for row in rows]
            served.choose(rows, chosen)
            appended += [
                (part.number, row.tokens[-1])
                for part, row, length in zip(own, rows, before, strict=True)
                if len(row.tokens) > length
            ]
        self.texts.append(appended)


def batch_for(models: Mapping, largest: int, texts: Texts | ShardedTexts | None) -> Batch:
    """Return the batch for a base and its adapters. largest: rows being generated. texts: of texts_for()."""
    return ContinuousBatch(models, texts, largest) if texts else WholeBatches(models, largest)


def texts_for(models: Mapping, memory_bytes: int) -> Texts | None:
    """Return the texts of these models; None where they cannot be computed in one row. memory_bytes: see Texts."""
    base = next(iter(models.values())).predictor
    loras = [served.predictor.model for served in models.values() if isinstance(served.predictor.model, LoRAModel)]
    if packs(base.family, base.config.to_dict()) and not any(map(runs_alone, loras)):
        return Texts(models, memory_bytes)
    return None

"""Encoded dialogues as samples of training, stored in a few flat arrays."""

import hashlib
import itertools
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from data_tools.dialogues.encoding import IGNORED, Encoded
from data_tools.formats.blended import BlendedDataset
from data_tools.formats.plural import plural

SHOWN_OF = 100  # of so many first samples the shortest is shown


COUNTS = {  # of template_worker.py: (name, what happens to these)
    "switched_off": ("answer", "read and not trained on, as the data say"),
    "not_last": ("earlier answer", "read and not trained on, by --trained_answers last"),
    "empty_reasoning": (
        "answer",
        "without reasoning behind a block that the chat template opens: trained with an empty one",
    ),
}


def fix_of_cuts(prompts: int, responses: int) -> str:
    """Return the flags that leave these uncut."""
    flags = [*(["--src_length"] if prompts else []), *(["--max_length"] if responses else [])]
    return f"raise {' and '.join(flags)}" if flags else ""


@dataclass(frozen=True)
class Cuts:
    """Counts of what did not fit into the allowed lengths, and of what else to report about the samples.

    Attributes:
        crossed: Borders of answers that lie within a token.
        counts: The counts named in COUNTS.
    """

    prompts: int
    answers: int
    turns: int
    crossed: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: "Cuts") -> "Cuts":
        return Cuts(
            self.prompts + other.prompts,
            self.answers + other.answers,
            self.turns + other.turns,
            self.crossed + other.crossed,
            self.counts + other.counts,
        )

    @property
    def fix(self) -> str:
        """The flags with which nothing is cut; "" where nothing is."""
        return fix_of_cuts(self.prompts, self.answers + self.turns)

    def __str__(self) -> str:
        """Return the counts as text, such as "cut: 3 questions, 1 answer"."""
        counts = [(self.prompts, "question"), (self.answers, "answer"), (self.turns, "later turn")]
        parts = [f"{count:,} {name}{'s' if count > 1 else ''}" for count, name in counts if count]
        lines = [f"cut: {', '.join(parts)}" if parts else "nothing cut"]
        lines += [
            f"{plural(self.counts[key], name)} {what}" for key, (name, what) in COUNTS.items() if self.counts[key]
        ]
        lines += [f"{plural(self.crossed, 'border')} of answers within a token"] if self.crossed else []
        return "; ".join(lines)


class DialogueDataset:
    """Samples {"input_ids", "labels"}, int64 [length], of different lengths; labels are shifted by one position.

    Attributes:
        counted: int64 [samples], labels of each sample that are not IGNORED.
        tokens: int64 [samples], its positions.
    """

    def __init__(self, dialogues: Iterable[Encoded]):
        dialogues = list(dialogues)
        self._starts = np.cumsum([0] + [len(dialogue.ids) for dialogue in dialogues])
        self._ids = flat(dialogue.ids for dialogue in dialogues)
        self._labels = flat(dialogue.labels for dialogue in dialogues)
        self.tokens = np.diff(self._starts) - 1
        self.counted = np.array([sum(label != IGNORED for label in dialogue.labels[1:]) for dialogue in dialogues])
        self.cuts = Cuts(
            sum(dialogue.cut_prompts for dialogue in dialogues),
            sum(dialogue.cut_answers for dialogue in dialogues),
            sum(dialogue.dropped_turns for dialogue in dialogues),
            sum(dialogue.crossed for dialogue in dialogues),
            sum((Counter(dialogue.counts) for dialogue in dialogues), Counter()),
        )

    def identity(self) -> dict:
        """Return a dict that changes with any token or label, and with the order of the samples."""
        digest = hashlib.sha256()
        for array in (self._starts, self._ids, self._labels):
            digest.update(np.ascontiguousarray(array).data)
        return {"dialogues": digest.hexdigest(), "samples": len(self)}

    @property
    def largest_id(self) -> int:
        """Return the largest id of all samples."""
        return int(self._ids.max(initial=0))

    @property
    def longest(self) -> int:
        """Ids of the longest sample."""
        return int(self.tokens.max()) + 1

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, i: int) -> dict[str, np.ndarray]:
        start, end = self._starts[i : i + 2]
        return {
            "input_ids": self._ids[start : end - 1].astype(np.int64),
            "labels": self._labels[start + 1 : end].astype(np.int64),
        }


def pack(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Return rows of samples, by their numbers: no row has more than `room` tokens, each sample is in one row.

    The longest sample comes first, each goes into the row that it fills best. One longer than `room` has a row of its
    own.
    """
    rows: list[list[int]] = []
    free: list[tuple[int, int]] = []  # (tokens that are free, number of the row), ascending
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        place = bisect_left(free, (lengths[number], 0))
        if place == len(free):
            left, row = room, len(rows)
            rows.append([])
        else:
            left, row = free.pop(place)
        rows[row].append(number)
        if left > lengths[number]:
            insort(free, (left - lengths[number], row))
    return rows


class PackedDialogues:
    """Dialogues packed into rows of at most `room` tokens.

    A row is a sample, with {"position_ids"} beside the rest: int64 [length], from 0 in each dialogue.

    Attributes:
        counted, tokens, cuts: As DialogueDataset has them, of rows.
    """

    def __init__(self, dialogues: DialogueDataset, room: int):
        self._dialogues = dialogues
        self._room = room
        self._rows = pack(dialogues.tokens.tolist(), room)
        self.tokens = np.array([dialogues.tokens[row].sum() for row in self._rows])
        self.counted = np.array([dialogues.counted[row].sum() for row in self._rows])
        self.cuts, self.largest_id = dialogues.cuts, dialogues.largest_id

    def identity(self) -> dict:
        """Return a dict that changes with any row or its order."""
        return self._dialogues.identity() | {"room": self._room, "samples": len(self)}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, i: int) -> dict[str, np.ndarray]:
        return one_row([self._dialogues[number] for number in self._rows[i]])


def one_row(samples: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return samples behind each other as one, with the positions of each."""
    row = {key: np.concatenate([sample[key] for sample in samples]) for key in samples[0]}
    return row | {"position_ids": np.concatenate([np.arange(sample["labels"].size) for sample in samples])}


class BlendedDialogues:
    """Several datasets of dialogues, or of preferences, as one: an epoch reads the share of each (BlendedDataset).

    Attributes:
        counted, tokens, cuts: As in DialogueDataset or PreferenceDataset, for all samples, including samples that
            an epoch has no place for.
    """

    def __init__(self, datasets: Sequence[Any], weights: Sequence[float]):
        self._blend = BlendedDataset(datasets, weights)
        self.datasets, self.samples_used = datasets, self._blend.samples_used
        self.tokens, self.counted = (np.empty(self._blend.sample.size, dtype=np.int64) for _ in range(2))
        for number, dataset in enumerate(datasets):
            self.tokens[self._blend.component == number] = dataset.tokens
            self.counted[self._blend.component == number] = dataset.counted
        self.cuts = reduce(add, (dataset.cuts for dataset in datasets))
        self.largest_id = max(dataset.largest_id for dataset in datasets)

    def __len__(self) -> int:
        return len(self._blend)

    def __getitem__(self, i: int) -> Any:
        return self._blend[i]

    def identity(self) -> dict:
        """Return what the samples and their order depend on."""
        return self._blend.identity()

    def epoch_order(self, seed: int, epoch: int) -> np.ndarray:
        """Return the samples of an epoch, in the order of training."""
        return self._blend.epoch_order(seed, epoch)


def sample_lines(
    dataset: DialogueDataset | PackedDialogues | BlendedDialogues, decode: Callable[[list[int]], str]
) -> list[str]:
    """Return one of the first samples, the shortest, as text lines; target tokens stand between [[ and ]]."""
    number = min(range(min(len(dataset), SHOWN_OF)), key=lambda i: dataset.tokens[i])
    row = dataset[number]
    starts = np.flatnonzero(row.get("position_ids", np.arange(row["labels"].size)) == 0)
    end = starts[1] if starts.size > 1 else row["labels"].size  # of the first dialogue of a packed row
    labels = row["labels"][:end].tolist()
    ids = [*row["input_ids"][:end].tolist(), labels[-1]]
    return marked_lines([(ids[0], False), *zip(ids[1:], (label != IGNORED for label in labels), strict=True)], decode)


def marked_lines(ids: list[tuple[int, bool]], decode: Callable[[list[int]], str]) -> list[str]:
    """Return ids as text lines. ids: each with whether it is a target token."""
    parts = []
    for counts, run in itertools.groupby(ids, key=lambda one: one[1]):
        text = decode([token for token, _ in run])
        parts.append(f"[[{text}]]" if counts else text)
    return ["a sample; its target tokens stand in [[ ]]:", *(f"    {line}" for line in "".join(parts).split("\n"))]


def flat(lists: Iterable[list[int]]) -> np.ndarray:
    """Return all ids in one int32 array, which fits any vocabulary."""
    arrays = [np.array(values, dtype=np.int32) for values in lists]
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int32)

"""Encoded dialogues as samples of training, held in a few flat arrays."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from data_tools.formats.blended import BlendedDataset
from data_tools.formats.encoding import IGNORED, Encoded


@dataclass(frozen=True)
class Cuts:
    """What did not fit into the lengths allowed."""

    prompts: int
    answers: int
    turns: int

    def __str__(self) -> str:
        """cut: 3 questions, 1 answer"""
        counts = [(self.prompts, "question"), (self.answers, "answer"), (self.turns, "later turn")]
        parts = [f"{count:,} {name}{'s' if count > 1 else ''}" for count, name in counts if count]
        return f"cut: {', '.join(parts)}" if parts else "nothing cut"


class DialogueDataset:
    """Samples {"input_ids", "labels"}, int64 [length], of different lengths; labels are those of the next position.

    counted: int64 [samples], labels of each sample that are not IGNORED; tokens: int64 [samples], its positions.
    """

    def __init__(self, dialogues: Iterable[Encoded]):
        dialogues = list(dialogues)
        self._starts = np.cumsum([0] + [len(one.ids) for one in dialogues])
        self._ids = _flat(one.ids for one in dialogues)
        self._labels = _flat(one.labels for one in dialogues)
        self.tokens = np.diff(self._starts) - 1
        self.counted = np.array([sum(label != IGNORED for label in one.labels[1:]) for one in dialogues])
        self.cuts = Cuts(
            sum(one.cut_prompts for one in dialogues),
            sum(one.cut_answers for one in dialogues),
            sum(one.dropped_turns for one in dialogues),
        )

    @property
    def largest_id(self) -> int:
        return int(self._ids.max(initial=0))

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, i: int) -> dict[str, np.ndarray]:
        start, end = self._starts[i : i + 2]
        return {
            "input_ids": self._ids[start : end - 1].astype(np.int64),
            "labels": self._labels[start + 1 : end].astype(np.int64),
        }


class BlendedDialogues(DialogueDataset):
    """Samples of several sources, dealt by a blend: an epoch reads of each source its share (BlendedDataset)."""

    def __init__(self, blend: BlendedDataset):
        super().__init__(blend[i] for i in range(blend.sample.size))
        self._blend = blend

    def __len__(self) -> int:
        return len(self._blend)

    def epoch_order(self, seed: int, epoch: int) -> np.ndarray:
        return self._blend.epoch_order(seed, epoch)


def _flat(lists: Iterable[list[int]]) -> np.ndarray:
    """int32 [all their ids]: those of any vocabulary fit."""
    arrays = [np.array(one, dtype=np.int32) for one in lists]
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int32)

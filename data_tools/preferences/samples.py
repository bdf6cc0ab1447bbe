"""Preferences as ids, stored in a few flat arrays.

What does not fit into max_length ids, prompt and response together, is cut so: first the prompt, which keeps its end
and the special tokens that begin it, as far as the longest response needs, but not below src_length ids; then the
responses, which keep their beginning, and no end token to train on. A pair whose responses are the same then is
dropped.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from os.path import commonprefix
from typing import NamedTuple

import numpy as np

from data_tools.dialogues.chat_template import Rendered
from data_tools.dialogues.encoding import Encoding, rendered
from data_tools.dialogues.samples import fix_of_cuts, flat, pack
from data_tools.formats.errors import DataError
from data_tools.formats.plural import plural
from data_tools.preferences.forms import Preference


class Pair(NamedTuple):
    """int32 ids.

    Attributes:
        prompt_ids: As the template has it, cut.
        chosen_ids, rejected_ids: With their end, where it was not cut.
    """

    prompt_ids: np.ndarray
    chosen_ids: np.ndarray
    rejected_ids: np.ndarray


class Desired(NamedTuple):
    """A judged response.

    Attributes:
        unrelated_ids: A response to another prompt, from which KTO estimates the distance to the reference (arXiv
            2402.01306, section 4.1).
    """

    prompt_ids: np.ndarray
    response_ids: np.ndarray
    desired: bool
    unrelated_ids: np.ndarray


@dataclass(frozen=True)
class EncodedPreference:
    """A preference as ids.

    Attributes:
        responses: The ids of chosen and rejected, or of the only one.
        whole: Ids of prompt and responses before they were cut.
    """

    prompt: list[int]
    responses: list[list[int]]
    desired: bool
    whole: tuple[int, ...]

    @property
    def cut_prompt(self) -> bool:
        """Whether the prompt was cut."""
        return len(self.prompt) < self.whole[0]

    @property
    def cut_responses(self) -> int:
        """Number of responses that were cut."""
        return sum(len(ids) < size for ids, size in zip(self.responses, self.whole[1:], strict=True))

    @property
    def is_equal(self) -> bool:
        """Whether nothing is left to compare."""
        return len(self.responses) == 2 and self.responses[0] == self.responses[1]


def encode_preferences(
    preferences: Sequence[Preference], encoding: Encoding
) -> Iterator[EncodedPreference | DataError]:
    """Yield the ids of each preference, or the reason why the chat template cannot render it."""
    dialogues = (dialogue for preference in preferences for dialogue in preference.dialogues())
    texts = (found for _, found in rendered(dialogues, replace(encoding, last=True)))
    for preference in preferences:
        found = [next(texts) for _ in preference.responses]
        try:
            yield _encode(found, encoding, preference.chosen is not None)
        except DataError as error:
            yield error


def _encode(found: list[Rendered | DataError], encoding: Encoding, desired: bool) -> EncodedPreference:
    both = []
    for one in found:
        if isinstance(one, DataError):
            raise one
        both.append(one.samples[-1])
    *earlier, (question, _) = both[0]
    if any((*others, before) != (*earlier, question) for *others, (before, _) in both):
        origin = encoding.template.origin if encoding.template else "the bare texts"
        raise DataError(f"{origin}: the text before the response depends on the response, so the two do not share it.")
    parts = [encoding.parts(turns)[0] for turns in both]
    prompts = []
    for *turns, (last_question, _) in parts:
        ids = []
        for asked, said in turns:  # of bare texts; of a template's there are none
            ids += [*asked, *encoding.ended(said, last=False)]
        prompts.append([*ids, *last_question])
    prompt, *others = prompts
    responses = [encoding.ended(one[-1][1], last=True) for one in parts]
    for number, other in enumerate(others, 1):  # a token across the border may hold something of the responses
        same = len(commonprefix([prompt, other]))
        responses[0], responses[number] = prompt[same:] + responses[0], other[same:] + responses[number]
        prompt = prompt[:same]
    if not encoding.begin and not prompt:
        raise DataError("an empty prompt, and the tokenizer begins no text with a special token.")
    whole = (len(encoding.begin) + len(prompt), *map(len, responses))
    allowed = max(encoding.max_length - max(map(len, responses)), encoding.src_length) - len(encoding.begin)
    prompt = [*encoding.begin, *prompt[max(len(prompt) - allowed, 0) :]]
    room = encoding.max_length - len(prompt)
    return EncodedPreference(prompt, [ids[:room] for ids in responses], desired, whole)


@dataclass(frozen=True)
class PreferenceCuts:
    """Counts of what did not fit into the allowed lengths.

    Attributes:
        dropped: Pairs whose responses became equal.
        first: The place of the first.
    """

    prompts: int
    responses: int
    dropped: int = 0
    first: str = ""

    def __add__(self, other: "PreferenceCuts") -> "PreferenceCuts":
        return PreferenceCuts(
            self.prompts + other.prompts,
            self.responses + other.responses,
            self.dropped + other.dropped,
            self.first or other.first,
        )

    @property
    def fix(self) -> str:
        """The flags with which nothing is cut; "" where nothing is."""
        return fix_of_cuts(self.prompts, self.responses)

    def __str__(self) -> str:
        counts = [(self.prompts, "prompt"), (self.responses, "response")]
        parts = [plural(count, name) for count, name in counts if count]
        line = f"cut: {', '.join(parts)}" if parts else "nothing cut"
        dropped = f"; dropped: {plural(self.dropped, 'pair')} whose responses are the same when cut, the first"
        return f"{line}{dropped} {self.first}" if self.dropped else line


class PreferenceDataset:
    """The common part of datasets of pairs and of single responses: each sample is a few lists of ids.

    Attributes:
        tokens: int64 [samples], positions of the rows of each.
        counted: int64 [samples], its pairs, or judged responses.
        labels: Of all responses together.
        cuts: What did not fit.
    """

    def __init__(self, samples: list[EncodedPreference], lists: int, cuts: PreferenceCuts):
        parts = [part for sample in samples for part in (sample.prompt, *sample.responses)]
        self._starts = np.cumsum([0, *map(len, parts)])
        self._ids = flat(parts)
        self._lists = lists
        self.lengths = np.diff(self._starts).reshape(-1, lists)
        self.cuts = reduce(
            add, (PreferenceCuts(int(sample.cut_prompt), sample.cut_responses) for sample in samples), cuts
        )
        self.counted = np.ones(len(samples), dtype=np.int64)
        self.labels = int(self.lengths[:, 1:].sum())
        self.tokens = self._tokens()

    def _tokens(self) -> np.ndarray:
        raise NotImplementedError

    def identity(self) -> dict:
        """Return a dict that changes with any token, and with the order of the samples."""
        digest = hashlib.sha256()
        for array in (self._starts, self._ids):
            digest.update(np.ascontiguousarray(array).data)
        return {"preferences": digest.hexdigest(), "samples": len(self)}

    @property
    def largest_id(self) -> int:
        """Return the largest id of all samples."""
        return int(self._ids.max(initial=0))

    @property
    def longest(self) -> int:
        """Ids of the longest prompt with a response."""
        return int((self.lengths[:, 0] + self.lengths[:, 1:].max(1)).max())

    def __len__(self) -> int:
        return len(self.lengths)

    def part(self, sample: int, number: int) -> np.ndarray:
        """Return int32 ids of the prompt (number 0) or of a response (1, 2)."""
        place = sample * self._lists + number
        return self._ids[self._starts[place] : self._starts[place + 1]]


class PairDataset(PreferenceDataset):
    """Pairs.

    Attributes:
        rows: int64 [samples, 2], positions of the rows of chosen and rejected.
        whole: Whether the last id of a response is read, too, as by a reward model; else it is predicted only.
    """

    def __init__(self, samples: list[EncodedPreference], cuts: PreferenceCuts, whole: bool = False):
        self._predicted = 0 if whole else 1
        super().__init__(samples, 3, cuts)

    @property
    def rows(self) -> np.ndarray:
        """Positions of the rows of each sample, [samples, responses]."""
        return self.lengths[:, :1] + self.lengths[:, 1:] - self._predicted

    def _tokens(self) -> np.ndarray:
        return self.rows.sum(1)

    def __getitem__(self, i: int) -> Pair:
        return Pair(*(self.part(i, number) for number in range(3)))


class DesiredDataset(PreferenceDataset):
    """Single responses, each with an unrelated one, cut to fit into max_length ids behind the prompt.

    The unrelated response is of the sample half of the dataset away, or of the next one with another prompt.

    Attributes:
        prompts: How many different ones there are; KTO needs two.
    """

    def __init__(self, samples: list[EncodedPreference], cuts: PreferenceCuts, max_length: int):
        self._desired = np.array([sample.desired for sample in samples], dtype=bool)
        self._max_length = max_length
        numbers: dict[tuple[int, ...], int] = {}
        prompts = np.array([numbers.setdefault(tuple(sample.prompt), len(numbers)) for sample in samples])
        self.prompts, self._partners = len(numbers), _of_another_prompt(prompts)
        super().__init__(samples, 2, cuts)

    def _tokens(self) -> np.ndarray:
        """Return the tokens of the judged responses' rows; unrelated responses have no target tokens."""
        return self.lengths.sum(1) - 1

    def __getitem__(self, i: int) -> Desired:
        prompt = self.part(i, 0)
        unrelated = self.part(self._partners[i], 1)[: self._max_length - len(prompt)]
        return Desired(prompt, self.part(i, 1), bool(self._desired[i]), unrelated)

    def identity(self) -> dict:
        """Return what the samples and their order depend on."""
        desired = hashlib.sha256(self._desired.tobytes()).hexdigest()
        return super().identity() | {"desired": desired, "max_length": self._max_length}


def _of_another_prompt(prompts: np.ndarray) -> np.ndarray:
    """Return int64[samples]: for each sample the first with another prompt, from half of the dataset away on.

    Behind the last sample comes the first; where there is only one prompt, it is the sample half of the dataset away.
    prompts: int64, a number for each.
    """
    half = np.roll(np.arange(len(prompts)), -(len(prompts) // 2))
    changes = np.flatnonzero(prompts != np.roll(prompts, 1))  # where the one before, in a circle, has another
    if not changes.size:
        return half
    behind = changes[np.searchsorted(changes, half, side="right") % len(changes)]
    return np.where(prompts[half] == prompts, behind, half)


class PackedPairs:
    """Pairs packed into samples of two rows of at most `room` positions.

    The chosen responses, each behind its prompt, are in one row, the rejected ones in the other in the same order. A
    sample is a list of pairs.

    Attributes:
        tokens, counted, labels, cuts: As PreferenceDataset has them.
    """

    def __init__(self, dataset: PairDataset, room: int):
        self._dataset, self._room = dataset, room
        self._samples = pack(dataset.rows.max(1).tolist(), room)
        self.counted = np.array([len(sample) for sample in self._samples])
        self.tokens = np.array([dataset.tokens[sample].sum() for sample in self._samples])
        self.labels, self.cuts, self.largest_id = dataset.labels, dataset.cuts, dataset.largest_id

    def identity(self) -> dict:
        """Return a dict that changes with any row or its order."""
        return self._dataset.identity() | {"room": self._room, "samples": len(self)}

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, i: int) -> list[Pair]:
        return [self._dataset[number] for number in self._samples[i]]

"""Texts and questions as requests, tokenized as lm-evaluation-harness does it.

Text before and continuation are tokenized together and cut where the tokens of the text before end; spaces at its end
belong to the continuation. Where both are longer than the model's positions, the beginning is left out; a continuation
that is longer alone is refused.
Source: https://github.com/EleutherAI/lm-evaluation-harness, lm_eval/api/model.py and lm_eval/utils.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from data_tools.formats.benchmarks.files import Asked
from data_tools.formats.dialogues.dialogue import Dialogue, Turn
from data_tools.formats.dialogues.encoding import Encoding
from data_tools.formats.dialogues.questions import SOME_ANSWER
from data_tools.formats.errors import DataError
from data_tools.formats.json_files import shown
from launch.errors import UserError
from launch.evaluation.shared_prefixes import Request


@dataclass(frozen=True)
class Encoder:
    """encoding: its `encode`, `begin` and `marks`, and its template, with which questions are asked; None: as bare
    texts. first: the id that stands before a text without anything before it. positions: of the model. written: ids
    that a written answer may have."""

    encoding: Encoding
    first: int
    positions: int
    written: int

    def choices(self, asked: Asked) -> list[Request]:
        """A request for each choice. Raises DataError, with the place, for one without tokens, and for one that is
        longer than the model's positions."""
        before, encode = cache(self._before), cache(self.encoding.encode)  # of most, one text is before all choices
        between = "" if self.encoding.template else asked.question.between
        requests = []
        for question, choice in asked.question.pairs:
            request = self._request(before(asked, question), between + choice, encode)
            scored = len(request.ids) - request.start
            if scored < 1:
                raise DataError(f"{asked.place}: the choice {shown(choice)!r} has no tokens of its own.")
            if scored > self.positions:
                raise DataError(
                    f"{asked.place}: the choice {shown(choice)!r} has {scored:,} tokens, the model {self.positions:,} "
                    "positions. Leave the row out."
                )
            requests.append(request)
        return requests

    def prompt(self, asked: Asked) -> Request:
        """The question, to be answered in words: nothing is scored. Where question and answer are longer than the
        model's positions, the beginning is left out."""
        question, _ = asked.question.turn
        ids = [*self.encoding.begin, *self.encoding.encode(self._before(asked, question))]
        room = self.positions - self.written - len(self.encoding.marks)
        cut = max(len(ids) - room, 0)
        ids = (*ids[cut:], *self.encoding.marks)
        return Request(ids, len(ids), cut > 0)

    def require_room(self) -> None:
        """Raises UserError where an answer leaves no position for its question."""
        if self.written + len(self.encoding.marks) >= self.positions:
            raise UserError(
                f"--max_new_tokens: found {self.written}, the model has {self.positions} positions for question and "
                f"answer. --max_new_tokens {self.positions // 2}, or less."
            )

    def _before(self, asked: Asked, question: str) -> str:
        """All text before the model's answer."""
        return self._as_chat(asked, question) if self.encoding.template else asked.before + question

    def _as_chat(self, asked: Asked, question: str) -> str:
        """The subject is the system's, each example a turn of its own."""
        turns = [*(Turn(*shot.turn) for shot in asked.shots), Turn(question, SOME_ANSWER)]
        [found] = self.encoding.texts([Dialogue(tuple(turns), system=asked.about)])
        if isinstance(found, DataError):
            raise DataError(f"{asked.place}: {found}")
        *examples, (before, _) = found
        return "".join(text for example in examples for text in example) + before

    def _request(self, before: str, continuation: str, encode: Callable[[str], list[int]]) -> Request:
        bare = before.rstrip()
        before, continuation = bare, before[len(bare) :] + continuation
        begin = list(self.encoding.begin)
        given = begin + encode(before)
        whole = begin + encode(before + continuation)
        if not given:
            given, whole = [self.first], [self.first, *whole]
        cut = max(len(whole) - 1 - self.positions, 0)  # the last id is predicted, and has no position
        return Request(tuple(whole[cut:]), len(given) - cut, cut > 0)

    def windows(self, text: str) -> list[Request]:
        """A text of any length: each id is scored once, with as much before it as its window has. What the tokenizer
        puts before a text is scored too, as the harness does."""
        ids = [*self.encoding.begin, *self.encoding.encode(text)]
        requests, given = [], self.first
        for start in range(0, len(ids), self.positions):
            window = ids[start : start + self.positions]
            if start and len(window) < self.positions:  # the last one is filled up with what stands before it
                begin = start - 1 - (self.positions - len(window))
                requests.append(Request(tuple(ids[begin : start + len(window)]), start - begin))
                break
            requests.append(Request((given, *window), 1))
            given = window[-1]
        return requests

"""Texts and questions as requests, tokenized as lm-evaluation-harness does it.

Text before and continuation are tokenized together and cut where the tokens of the text before end; spaces at its end
belong to the continuation. Where both are longer than the model's positions, the beginning is left out.
Source: https://github.com/EleutherAI/lm-evaluation-harness, lm_eval/api/model.py and lm_eval/utils.py.
"""

from dataclasses import dataclass

from data_tools.formats.benchmarks.files import Asked
from data_tools.formats.dialogues.dialogue import Dialogue, Turn
from data_tools.formats.dialogues.encoding import Encoding
from data_tools.formats.dialogues.questions import SOME_ANSWER
from data_tools.formats.errors import DataError
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

    def questions(self, asked: list[Asked]) -> list[list[Request]]:
        """The choices of each question. Raises DataError, with the place, for a choice without tokens."""
        return [self._choices(each) for each in asked]

    def _choices(self, asked: Asked) -> list[Request]:
        requests = []
        for question, choice in asked.question.pairs:
            if self.encoding.template:
                before = self._as_chat(asked, question)
            else:
                before, choice = asked.before + question, asked.question.between + choice
            request = self._request(before, choice)
            if len(request.ids) <= request.start:
                raise DataError(f"{asked.place}: the choice {choice!r} has no tokens of its own.")
            requests.append(request)
        return requests

    def prompts(self, asked: list[Asked]) -> list[list[Request]]:
        """The question of each, to be answered in words: a request of which nothing is scored."""
        return [[self._prompt(each)] for each in asked]

    def _prompt(self, asked: Asked) -> Request:
        """Where question and answer are longer than the model's positions, the beginning is left out."""
        question, _ = asked.question.turn
        before = self._as_chat(asked, question) if self.encoding.template else asked.before + question
        ids = [*self.encoding.begin, *self.encoding.encode(before)]
        room = self.positions - self.written - len(self.encoding.marks)
        ids = (*ids[-room:], *self.encoding.marks)
        return Request(ids, len(ids))

    def _as_chat(self, asked: Asked, question: str) -> str:
        """All text before the model's answer: the subject is the system's, each example a turn of its own."""
        turns = [*(Turn(*shot.turn) for shot in asked.shots), Turn(question, SOME_ANSWER)]
        [found] = self.encoding.texts([Dialogue(tuple(turns), system=asked.about)])
        if isinstance(found, DataError):
            raise DataError(f"{asked.place}: {found}")
        *examples, (before, _) = found
        return "".join(text for example in examples for text in example) + before

    def _request(self, before: str, continuation: str) -> Request:
        bare = before.rstrip()
        before, continuation = bare, before[len(bare) :] + continuation
        begin = list(self.encoding.begin)
        given = begin + self.encoding.encode(before)
        whole = begin + self.encoding.encode(before + continuation)
        if not given:
            given, whole = [self.first], [self.first, *whole]
        cut = max(len(whole) - 1 - self.positions, 0)
        return Request(tuple(whole[cut:]), max(len(given) - cut, 1))

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

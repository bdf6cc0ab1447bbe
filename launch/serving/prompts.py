"""Texts and chats to ids, as training and launch/commands/predict.py make them."""

from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace

from data_tools.formats.dialogues.dialogue import RowError
from data_tools.formats.dialogues.questions import NO_LIMIT, Question, encode_question, row_question, text_question
from data_tools.formats.errors import DataError
from launch.errors import UserError
from launch.families.chat import NONE, template_line
from launch.prediction.predictor import Predictor
from launch.serving.errors import Reason, Refusal
from launch.training.data.encoding import encoding_of


@dataclass
class Prompts:
    """chat_template: a name or file; None: that of the model's family."""

    predictor: Predictor
    chat_template: str | None

    def of_text(self, text: str) -> list[int]:
        """The bare text, after what the tokenizer puts before every text."""
        self._require_size(len(text), "prompt")
        return self._encode(text_question(text), self._for_texts, "prompt")

    def of_chat(self, messages: list[dict]) -> list[int]:
        """messages: {"role": ..., "content": text}, the last one the user's."""
        if messages and messages[-1]["role"] != "user":
            found = f"the last one is of the role {messages[-1]['role']!r}, expected 'user': it is what is answered"
            raise Refusal(Reason.INVALID, f"messages: {found}", "messages")
        self._require_size(sum(len(message["content"]) for message in messages), "messages")
        try:
            question = row_question({"messages": messages})
        except (RowError, DataError) as error:
            raise Refusal(Reason.INVALID, f"messages: {error}", "messages") from None
        return self._encode(question, self._for_chats, "messages")

    def of_ids(self, ids: list[int]) -> list[int]:
        size = min(self.predictor.config.vocab_size, self.predictor.known_ids)
        wrong = next((one for one in ids if not 0 <= one < size), None)
        if wrong is not None:
            raise Refusal(Reason.INVALID, f"prompt: found id {wrong}, the model has ids from 0 to {size - 1}", "prompt")
        return ids

    @property
    def template_line(self) -> str:
        return template_line(self._for_chats.template)

    def prepare(self) -> None:
        """Raises UserError or DataError where texts or chats cannot become ids at all: better before the first one."""
        self._for_texts, self._longest_token  # noqa: B018
        encode_question(text_question("?").dialogue, self._for_chats)  # a template shows its faults when it renders

    def _require_size(self, characters: int, parameter: str) -> None:
        """Raises Refusal for what cannot fit however it is encoded, before it is."""
        most = self.predictor.positions * self._longest_token
        if characters > most:
            room = f"{self.predictor.positions} positions for tokens of {self._longest_token} characters at most"
            found = f"{parameter}: found {characters} characters, the model has {room}"
            raise Refusal(Reason.INVALID, found, parameter)

    @cached_property
    def _longest_token(self) -> int:
        """Characters of the tokenizer's longest token."""
        return max(len(token) for token in self.predictor.tokenizer.get_vocab())

    def _encode(self, question: Question, encoding, parameter: str) -> list[int]:
        try:
            return encode_question(question.dialogue, encoding)[0]
        except (UserError, DataError) as error:
            raise Refusal(Reason.INVALID, f"{parameter}: {error}", parameter) from None

    @cached_property
    def _for_texts(self):
        return self._encoding(NONE, chat=False)

    @cached_property
    def _for_chats(self):
        return self._encoding(self.chat_template, chat=True)

    def _encoding(self, template: str | None, chat: bool):
        limits = SimpleNamespace(chat_template=template, src_length=NO_LIMIT, max_length=NO_LIMIT)
        return encoding_of(limits, self.predictor.tokenizer, self.predictor.config.to_dict(), chat, use=True)

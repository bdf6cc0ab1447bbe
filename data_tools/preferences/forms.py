r"""What preference tuning learns from: prompts with judged responses, and the rows that hold them.

Pairs, of which one response is better than the other:

    {"prompt": "...", "chosen": "...", "rejected": "..."}             TRL's, texts
    {"prompt": [...], "chosen": [...], "rejected": [...]}             TRL's, messages {"role", "content"}
    {"chosen": [...], "rejected": [...]}                              the same, the prompt being what both begin with
    {"prompt": "...", "chosen": [...], "rejected": [...]}             UltraFeedback's: the messages hold the prompt, too
    {"chosen": "...", "rejected": "..."}                              texts that begin with the prompt; Anthropic's
                                                                      "\n\nHuman: ...\n\nAssistant: ..." are chats
    {"src": [...], "tgt": [...], "response": ["", ""], "sort": [1, 0]}     PaddleNLP's: of the higher "sort" is chosen;
                                                                      ERNIEKit's with lists: [["..."], ["..."]]
    {"messages": [..., {"preferred_output": {...}, "non_preferred_output": {...}}]}     PaddleFormers'
    {"conversations": [...], "chosen": {...}, "rejected": {...}}      ShareGPT's messages {"from", "value"}
    {"instruction": "...", "input": "...", "chosen": "...", "rejected": "..."}     Alpaca's
    {"messages": [...], "rejected_response": "..."}                   ms-swift's: messages end with the chosen one

Single responses, which are desired or not:

    {"prompt": "...", "completion": "...", "label": true}             TRL's for KTO, texts or messages
    {"src": [...], "tgt": [...], "response": ["..."], "sort": [1]}    PaddleNLP's for KTO: 1 is desired, 0 is not
    {"messages": [...], "label": true}                                ms-swift's for KTO

Each may have "system". Messages of both responses of a pair are the same up to the last one, the assistant's.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from data_tools.dialogues.dialogue import (
    SPOKEN,
    Schema,
    alpaca_dialogue,
    best_schema,
    listed,
    one_text,
    optional_text,
    sharegpt_messages,
    spoken_dialogue,
    texts_at,
)
from data_tools.dialogues.messages import Dialogue, Message, RowError, checked, plain_dialogue, value_at
from data_tools.dialogues.rows import Rows, read_entries
from data_tools.formats.errors import DataError
from data_tools.formats.json_files import quoted, shown

ANTHROPIC = "\n\nHuman:"
SPEAKER = re.compile(r"\n\n(Human|Assistant):")
COLUMNS = ("prompt_column", "chosen_column", "rejected_column")


@dataclass(frozen=True)
class Preference:
    """A dialogue up to what is answered, and its responses.

    Attributes:
        chosen, rejected: Both of a pair; of a single response one is None.
    """

    prompt: Dialogue
    chosen: Message | None
    rejected: Message | None

    @property
    def is_pair(self) -> bool:
        """Whether both responses are there."""
        return self.chosen is not None and self.rejected is not None

    @property
    def responses(self) -> list[Message]:
        """The responses that are there, the chosen one first."""
        return [response for response in (self.chosen, self.rejected) if response is not None]

    def dialogues(self) -> list[Dialogue]:
        """Return the dialogue of each response."""
        return [
            replace(self.prompt, messages=(*self.prompt.messages, replace(response, trained=True)))
            for response in self.responses
        ]


@dataclass(frozen=True)
class PreferenceForm(Schema[Preference]):
    """A form of rows with two judged responses.

    Attributes:
        also: A further condition for rows with these keys: some forms have the same keys.
    """

    also: Callable[[dict], bool] = lambda row: True

    def fits(self, row: dict) -> bool:
        """Return whether a row has the keys and passes the further condition."""
        return super().fits(row) and self.also(row)


@dataclass(frozen=True)
class PreferenceColumns:
    """Keys of the texts of pairs, None where the first rows of each file tell.

    Attributes:
        paired: Whether all rows must be pairs.
    """

    prompt: str | None = None
    chosen: str | None = None
    rejected: str | None = None
    paired: bool = False

    def read(self, file: Any) -> Rows[Preference]:
        """Return all preferences of a file.

        Raises:
            DataError: As read_rows, and where a row that must be a pair is none.
        """
        rows = read_entries(file, self._find)
        for preference, line in zip(rows.entries, rows.lines, strict=True):
            if self.paired and not preference.is_pair:
                raise DataError(
                    f"{rows.file}:{line}: one response that is desired or not, expected a chosen and a rejected one. "
                    "--loss_type kto learns from single responses."
                )
        return rows

    def _find(self, rows: list[dict]) -> Schema[Preference]:
        if self.prompt and self.chosen and self.rejected:
            keys = (self.prompt, self.chosen, self.rejected)
            if len(set(keys)) < len(keys):
                flags = ", ".join(f"--{name}" for name in COLUMNS)
                raise DataError(f"{flags}: found {', '.join(keys)}, expected three different keys.")
            return PreferenceForm("/".join(keys), keys, False, lambda row: _texts(row, *keys))
        if self.prompt or self.chosen or self.rejected:
            raise DataError(f"{', '.join(f'--{name}' for name in COLUMNS)}: give all three or none.")
        return best_schema(rows, FORMS, " ".join(f"--{name} KEY" for name in COLUMNS))


def of_pair(chosen: Dialogue, rejected: Dialogue) -> Preference:
    """Return the preference between two dialogues that differ in their last answer alone.

    Raises:
        RowError: If they do not.
    """
    if _prompt(chosen) != _prompt(rejected):
        raise RowError("chosen and rejected differ before their last message, which alone may differ")
    response, other = chosen.messages[-1], rejected.messages[-1]
    if replace(response, content=response.text.strip()) == replace(other, content=other.text.strip()):
        raise RowError("chosen and rejected are the same")
    return Preference(_prompt(chosen), response, other)


def of_single(dialogue: Dialogue, desired: bool) -> Preference:
    """Return the preference of a dialogue whose last answer is desired or not."""
    response = dialogue.messages[-1]
    return Preference(_prompt(dialogue), *((response, None) if desired else (None, response)))


def _prompt(dialogue: Dialogue) -> Dialogue:
    return replace(dialogue, messages=dialogue.messages[:-1])


def _both(read: Callable[[dict, str], Dialogue]) -> Callable[[dict], Preference]:
    """Return a reader of pairs. read: returns the dialogue of a row whose last answer is at a key."""
    return lambda row: of_pair(read(row, "chosen"), read(row, "rejected"))


def _texts(row: dict, prompt: str, chosen: str, rejected: str) -> Preference:
    system = optional_text(row, "system")
    return of_pair(
        *(plain_dialogue([(one_text(row, prompt), one_text(row, key))], system) for key in (chosen, rejected))
    )


def _with_prompt(row: dict, key: str) -> Dialogue:
    """Return messages; the earlier ones are at "prompt" or stand before the response itself."""
    said, prompt = _listed(value_at(row, key)), _listed(row.get("prompt") or [])
    if not isinstance(said, list) or not isinstance(prompt, (list, str)):
        raise RowError(f"{key!r} or 'prompt' is not a list of messages: {quoted(row)}")
    if isinstance(prompt, str):  # a copy of what messages hold themselves, or all that is before the response
        prompt = [{"role": "user", "content": prompt}] if len(said) == 1 else []
    whole = said if said[: len(prompt)] == prompt else [*prompt, *said]
    return spoken_dialogue(row, listed({key: whole}, key))


def _sharegpt(row: dict, key: str) -> Dialogue:
    before, said = value_at(row, "conversations"), _listed(value_at(row, key))
    if not isinstance(before, list) or not isinstance(said, list):
        raise RowError(f"'conversations' or {key!r} is not a list of messages: {quoted(row)}")
    return spoken_dialogue(row, sharegpt_messages(listed({key: [*before, *said]}, key)))


def _listed(messages: Any) -> Any:
    return [messages] if isinstance(messages, dict) else messages


def _anthropic(row: dict, key: str) -> Dialogue:
    before, *parts = SPEAKER.split(one_text(row, key))
    speakers, said = parts[0::2], [text.strip() for text in parts[1::2]]
    if before.strip() or speakers != ["Human", "Assistant"] * (len(speakers) // 2):
        raise RowError(f"{key!r}: Human and Assistant do not take turns, ending with the Assistant")
    return plain_dialogue(zip(said[0::2], said[1::2], strict=True))


def _implicit(row: dict) -> Preference:
    """Return the preference of two texts.

    Their prompt is the words that both begin with; the space behind them belongs to the responses.
    """
    chosen, rejected = one_text(row, "chosen"), one_text(row, "rejected")
    same = os.path.commonprefix([chosen, rejected])
    spaces = [place for place, character in enumerate(same) if character.isspace()]
    prompt = same[: spaces[-1]] if spaces else same
    if not prompt.strip():
        raise RowError("chosen and rejected begin with different words, and there is no 'prompt'")
    whole = row | {"prompt": prompt, "chosen": chosen[len(prompt) :], "rejected": rejected[len(prompt) :]}
    return _texts(whole, "prompt", "chosen", "rejected")


def _sorted(row: dict) -> Preference:
    questions = texts_at(row, "src")
    answers = texts_at(row, "tgt") if row.get("tgt") else []
    system = optional_text(row, "system")
    if row.get("is_system") == 1 and len(questions) > 1:  # ERNIEKit's: the first question is the system text
        system, questions, answers = questions[0], questions[1:], answers[1:]
    (responses, said), order = _responses(row), value_at(row, "sort")
    questions, answers = [*questions, *said[1::2]], [*answers, *said[0::2]]
    if len(questions) != len(answers) + 1:
        raise RowError(f"{len(questions)} texts at 'src' and {len(answers)} at 'tgt', expected one more at 'src'")
    # Not NaN, too: json.dumps writes it of a score that failed, and no comparison orders it.
    if not isinstance(order, list) or not all(
        isinstance(number, int) or (isinstance(number, float) and isfinite(number)) for number in order
    ):
        raise RowError(f"'sort' is not a list of finite numbers: {quoted(order)}")
    if len(responses) != len(order) or len(responses) not in (1, 2):
        raise RowError(f"{len(responses)} texts at 'response' and {len(order)} at 'sort', expected two of each, or one")
    dialogues = [plain_dialogue(zip(questions, [*answers, text], strict=True), system) for text in responses]
    if len(order) == 1:
        return of_single(dialogues[0], _truth("sort", order[0]))
    if order[0] == order[1]:
        raise RowError(f"'sort' has {shown(order[0])} twice: the higher number is that of the chosen response")
    return of_pair(*(dialogues if order[0] > order[1] else dialogues[::-1]))


def _responses(row: dict) -> tuple[list[str], list[str]]:
    """Return the responses, and what all of them begin with where each is a list of answers and questions in turn."""
    value = value_at(row, "response")
    if not isinstance(value, list) or not value or not all(isinstance(one, list) for one in value):
        return texts_at(row, "response"), []
    sessions = [texts_at({"response": one}, "response") for one in value]
    said = sessions[0][:-1]
    if len(said) % 2 or any(len(one) != len(said) + 1 or one[:-1] != said for one in sessions):
        raise RowError("'response' has lists that differ before their last text, which alone may differ")
    return [one[-1] for one in sessions], said


def _labeled(row: dict) -> Preference:
    completion, prompt = value_at(row, "completion"), value_at(row, "prompt")
    if isinstance(completion, str) and isinstance(prompt, str):
        dialogue = plain_dialogue(
            [(one_text(row, "prompt"), one_text(row, "completion"))], optional_text(row, "system")
        )
    else:
        dialogue = _with_prompt(row, "completion")
    return of_single(dialogue, _truth("label", value_at(row, "label")))


def _messages(row: dict) -> Dialogue:
    return spoken_dialogue(row, listed(row, "messages"))


def _swift(row: dict) -> Preference:
    chosen, rejected = _messages(row), Message("assistant", one_text(row, "rejected_response"))
    return of_pair(chosen, checked(replace(chosen, messages=(*chosen.messages[:-1], rejected))))


def _preferred(row: dict) -> Preference:
    *before, last = listed(row, "messages")
    return of_pair(
        *(
            spoken_dialogue(row | {"label": None}, [*before, *_listed(value_at(last, key))])
            for key in ("preferred_output", "non_preferred_output")
        )
    )


def _truth(key: str, value: object) -> bool:
    if not isinstance(value, (bool, int)) or value not in (0, 1):
        raise RowError(f"{key!r} is {quoted(value)}, expected true or 1 for a desired response, false or 0 for another")
    return bool(value)


def _has_text(row: dict) -> bool:
    return isinstance(row.get("chosen", row.get("completion")), str)


def _has_messages(row: dict) -> bool:
    return not _has_text(row)


def _is_anthropic(row: dict) -> bool:
    return _has_text(row) and row["chosen"].startswith(ANTHROPIC)


def _has_no_other_text(row: dict) -> bool:
    """Return whether a row has no other text, which may be the prompt, at an unknown key."""
    others = row.keys() - {"chosen", "rejected", "system"}
    return _has_text(row) and not any(isinstance(row[key], (str, list)) for key in others)


def _has_preferred(row: dict) -> bool:
    messages = row["messages"]
    last = messages[-1] if isinstance(messages, list) and messages else None
    return isinstance(last, dict) and {"preferred_output", "non_preferred_output"} <= last.keys()


PAIR, SINGLE = ("prompt", "chosen", "rejected"), ("prompt", "completion", "label")
FORMS = (
    PreferenceForm("prompt/chosen/rejected", PAIR, False, lambda row: _texts(row, *PAIR), also=_has_text),
    PreferenceForm("src/response/sort", ("src", "response", "sort"), False, _sorted, ("tgt", "system", "is_system")),
    PreferenceForm("messages/preferred_output", ("messages",), True, _preferred, SPOKEN, also=_has_preferred),
    PreferenceForm("prompt/completion/label", SINGLE, False, _labeled, also=_has_text),
    PreferenceForm("prompt/completion/label messages", SINGLE, True, _labeled, SPOKEN, also=_has_messages),
    PreferenceForm(
        "conversations/chosen/rejected",
        ("conversations", *PAIR[1:]),
        True,
        _both(_sharegpt),
        SPOKEN,
        also=_has_messages,
    ),
    PreferenceForm(
        "instruction/chosen/rejected",
        ("instruction", *PAIR[1:]),
        True,
        _both(alpaca_dialogue),
        ("input", "history", "system"),
        also=_has_text,
    ),
    PreferenceForm("messages/rejected_response", ("messages", "rejected_response"), True, _swift, SPOKEN),
    PreferenceForm(
        "messages/label",
        ("messages", "label"),
        True,
        lambda row: of_single(_messages(row), _truth("label", value_at(row, "label"))),
        SPOKEN,
    ),
    PreferenceForm(
        "chosen/rejected messages", PAIR[1:], True, _both(_with_prompt), ("prompt", *SPOKEN), also=_has_messages
    ),
    PreferenceForm("chosen/rejected of Anthropic", PAIR[1:], True, _both(_anthropic), (), also=_is_anthropic),
    PreferenceForm("chosen/rejected", PAIR[1:], False, _implicit, also=_has_no_other_text),
)

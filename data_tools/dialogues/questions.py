"""Rows that ask: as those of dialogue.py, of which the last answer may be missing.

{"src": "..."}      {"instruction": "...", "input": "..."}      {"messages": [..., {"role": "user", ...}]}
"""

from dataclasses import dataclass, replace
from pathlib import Path

from data_tools.dialogues.dialogue import Dialogue, RowError, Turn, find_schema
from data_tools.dialogues.encoding import IGNORED, Encoding, encode_dialogue
from data_tools.dialogues.rows import FAULTS_SHOWN, Fault, records
from data_tools.formats.errors import DataError
from data_tools.formats.json_files import shown

SOME_ANSWER = "?"  # stands where a model shall answer; it is not looked at
ANSWERS = {"src": "tgt", "content": "summary", "instruction": "output"}  # key of the question -> of the answer
CHATS = {  # key of the messages -> what is said last
    "messages": {"role": "assistant", "content": SOME_ANSWER},
    "conversations": {"from": "gpt", "value": SOME_ANSWER},
}
NO_LIMIT = 1 << 40


@dataclass(frozen=True)
class Question:
    """row: as the file has it. chat: whether its schema is one of chats."""

    row: dict
    dialogue: Dialogue
    chat: bool


def text_question(text: str, system: str | None = None) -> Question:
    """Return the question of a text that is no row; with a system message in front, a chat."""
    if system:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
        return row_question({"messages": messages})
    return Question({"src": text}, Dialogue((Turn(text, SOME_ANSWER),)), chat=False)


def read_questions(file: str | Path, prompt_column: str | None = None) -> list[Question]:
    """All rows of a file. Raises DataError, with file and line, where some ask nothing that is understood."""
    questions, faults = [], []
    for line, record in records(Path(file)):
        try:
            questions.append(row_question(record, prompt_column))
        except (RowError, DataError) as error:
            faults.append(Fault(str(file), line, str(error)))
    if faults:
        more = f"; and {len(faults) - FAULTS_SHOWN} more" if len(faults) > FAULTS_SHOWN else ""
        raise DataError(f"{'; '.join(map(str, faults[:FAULTS_SHOWN]))}{more}")
    if not questions:
        raise DataError(f"{file}: no rows.")
    return questions


def row_question(record: dict | str, prompt_column: str | None = None) -> Question:
    """The question of a row. Raises RowError or DataError where it has none that is understood."""
    if isinstance(record, str):
        raise RowError(record)
    if prompt_column and prompt_column not in record:
        raise RowError(f"no key {prompt_column!r}, only {', '.join(map(shown, record)) or 'none'}")
    completed = _completed({"src": record[prompt_column]} if prompt_column else record)
    schema = find_schema([completed])
    return Question(record, schema.read(completed), schema.chat)


def _completed(row: dict) -> dict:
    """The row with an answer to its last question."""
    row = dict(row)
    for key, answer in ANSWERS.items():
        if isinstance(row.get(key), list):
            answered = row[answer] if isinstance(row.get(answer), list) else []
            row[answer] = answered[: len(row[key]) - 1] + [SOME_ANSWER]
        elif key in row:
            row[answer] = row.get(answer) or SOME_ANSWER
    for key, answer in CHATS.items():
        messages = row.get(key)
        if isinstance(messages, list) and messages and _asks(messages[-1]):
            row[key] = [*messages, answer]
    return row


def _asks(message: object) -> bool:
    return isinstance(message, dict) and any(message.get(key) in ("user", "human") for key in ("role", "from"))


def encode_question(dialogue: Dialogue, encoding: Encoding) -> tuple[list[int], bool]:
    """(the ids before the last answer, as training has them; whether a question was cut)"""
    *_, encoded = encode_dialogue(dialogue, replace(encoding, max_length=NO_LIMIT))
    start, _ = last_answer(encoded.labels)
    return encoded.ids[:start], encoded.cut_prompts > 0


def last_answer(labels: list[int]) -> tuple[int, int]:
    """(first position, one behind the last) of the last run of labels that count: there must be one."""
    end = next(i for i in range(len(labels), 0, -1) if labels[i - 1] != IGNORED)
    start = next((i + 1 for i in range(end - 1, -1, -1) if labels[i] == IGNORED), 0)
    return start, end

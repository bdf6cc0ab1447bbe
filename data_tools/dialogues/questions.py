"""Rows that ask: as those of dialogue.py, of which the last answer may be missing.

{"src": "..."}      {"instruction": "...", "input": "..."}      {"messages": [..., {"role": "user", ...}]}
"""

from dataclasses import dataclass, replace
from pathlib import Path

from data_tools.dialogues.dialogue import SCHEMAS, find_schema, refuse_media
from data_tools.dialogues.encoding import IGNORED, Encoding
from data_tools.dialogues.messages import Dialogue, RowError, plain_dialogue
from data_tools.dialogues.rows import FAULTS_SHOWN, Fault
from data_tools.formats.errors import DataError
from data_tools.formats.json_files import shown
from data_tools.formats.records import records

NO_LIMIT = 1 << 40


@dataclass(frozen=True)
class Question:
    """The question of a row.

    Attributes:
        row: As the file has it.
        chat: Whether its schema is one of chats.
    """

    row: dict
    dialogue: Dialogue
    chat: bool


def text_question(text: str, system: str | None = None) -> Question:
    """Return the question of a text that is no row; with a system message in front, a chat."""
    return Question({"src": text}, plain_dialogue((), system or "", text), chat=bool(system))


def read_questions(file: str | Path, prompt_column: str | None = None) -> list[Question]:
    """Return the questions of all rows of a file.

    Raises:
        DataError: With file and line, where a row has no question in a known form.
    """
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
    """Return the question of a row.

    Raises:
        RowError, DataError: If it has none in a known form.
    """
    if isinstance(record, str):
        raise RowError(record)
    if prompt_column and prompt_column not in record:
        raise RowError(f"no key {prompt_column!r}, only {', '.join(map(shown, record)) or 'none'}")
    refuse_media(record)
    row = {"src": record[prompt_column]} if prompt_column else record
    schema = next((schema for schema in SCHEMAS if schema.ask and schema.keys[0] in row), None) or find_schema([row])
    assert schema.ask, "each of SCHEMAS asks"
    return Question(record, schema.ask(row), schema.chat)


def encode_question(dialogue: Dialogue, encoding: Encoding) -> tuple[list[int], bool]:
    """Return (the ids before the answer, as training has them; whether a question was cut).

    The last question keeps its end where it is longer than src_length.
    """
    ids = encoding.prompt(dialogue)
    fixed = len(encoding.begin) + len(encoding.marks)
    room = encoding.src_length - fixed + _said_before(dialogue, encoding, len(ids))
    end = len(ids) - len(encoding.marks)
    question = ids[len(encoding.begin) : end]
    if len(question) <= room:
        return ids, False
    return [*encoding.begin, *question[len(question) - room :], *encoding.marks], True


def _said_before(dialogue: Dialogue, encoding: Encoding, length: int) -> int:
    """Return how many ids are of earlier turns, which are not cut. length: of the whole prompt."""
    answers = [place for place, message in enumerate(dialogue.messages) if message.role == "assistant"]
    if length <= encoding.src_length or not answers:
        return 0
    before = replace(dialogue, messages=dialogue.messages[: answers[-1] + 1])
    [found] = encoding.texts([before])
    if isinstance(found, DataError):
        return 0
    return sum(len(encoding.encode(text)) for turn in found.samples[-1] for text in turn)


def last_answer(labels: list[int]) -> tuple[int, int]:
    """Return (first position, one behind the last) of the last run of target labels; there must be one."""
    end = next(i for i in range(len(labels), 0, -1) if labels[i - 1] != IGNORED)
    start = next((i + 1 for i in range(end - 1, -1, -1) if labels[i] == IGNORED), 0)
    return start, end

"""Read files of dialogues: JSON lines, or one JSON list. A row that is none is a fault with its place and reason."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from data_tools.formats.dialogues.dialogue import Dialogue, RowError, Schema, find_schema
from data_tools.formats.errors import DataError
from data_tools.formats.lines import not_json, not_utf8
from data_tools.formats.plural import plural

FIRST_ROWS = 10  # of which the schema is found
FAULTS_SHOWN = 5


@dataclass(frozen=True)
class Fault:
    file: str
    line: int  # 1 for the first; in a JSON list the number of the row
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


@dataclass(frozen=True)
class Rows:
    """What a file holds. faults: its rows that are no dialogues, in order."""

    dialogues: list[Dialogue]
    schema: Schema
    faults: list[Fault]


def read_rows(
    file: str | Path, prompt_column: str | None = None, response_column: str | None = None
) -> Rows:
    """All dialogues of a file, by the schema that its first whole rows have, or by the columns named.

    Raises DataError when the file cannot be read, no schema fits, or no row is a dialogue.
    """
    rows = records(Path(file))
    first = list(itertools.islice(rows, FIRST_ROWS))
    if not first:
        raise DataError(f"{file}: the file is empty. Give one with dialogues.")
    if all(isinstance(record, str) for _, record in first):
        raise DataError(f"{file}: none of the first rows can be read. Line {first[0][0]}: {first[0][1]}.")
    try:
        whole = [record for _, record in first if isinstance(record, dict)]
        schema = find_schema(whole, prompt_column, response_column)
    except DataError as error:
        broken = next((f" Line {line}: {record}." for line, record in first if isinstance(record, str)), "")
        raise DataError(f"{file}: {error}{broken}") from None
    dialogues, faults = [], []
    for line, record in itertools.chain(first, rows):
        try:
            if isinstance(record, str):
                raise RowError(record)
            dialogues.append(schema.read(record))
        except RowError as error:
            faults.append(Fault(str(file), line, str(error)))
    if not dialogues:
        raise DataError(f"{file}: no dialogues, {plural(len(faults), 'broken row')}. {faults[0]}")
    return Rows(dialogues, schema, faults)


def check_faults(faults: list[Fault], allowed: int) -> None:
    """Raise DataError, with the first of them, when there are more faults than allowed."""
    if len(faults) <= allowed:
        return
    shown = "; ".join(str(fault) for fault in faults[:FAULTS_SHOWN])
    more = f"; and {len(faults) - FAULTS_SHOWN} more" if len(faults) > FAULTS_SHOWN else ""
    raise DataError(
        f"{plural(len(faults), 'broken row')}, --max_broken_rows allows {allowed}: {shown}{more}. "
        f"Mend or remove them, or leave them out: --max_broken_rows {len(faults)}."
    )


def records(file: Path) -> Iterator[tuple[int, dict | str]]:
    """(number, the row or the reason why it is none) of each row that is not blank."""
    try:
        with open(file, "rb") as lines:
            start = lines.read(64).lstrip()
            lines.seek(0)
            yield from _of_list(lines.read(), file) if start.startswith(b"[") else _of_lines(lines, file)
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}.") from None


def _of_lines(lines, file: Path) -> Iterator[tuple[int, dict | str]]:
    for number, line in enumerate(lines, start=1):
        if not line.isspace():
            yield number, _object(_parsed(line.rstrip(), file))


def _of_list(content: bytes, file: Path) -> Iterator[tuple[int, dict | str]]:
    rows = _parsed(content, file)
    if isinstance(rows, str):
        yield 1, rows
        return
    for number, row in enumerate(rows, start=1):
        yield number, _object(row)


def _parsed(content: bytes, file: Path):
    """The JSON value, or the reason why it is none as a text."""
    try:
        value = json.loads(content)
    except UnicodeDecodeError as error:
        return not_utf8(error, file)
    except json.JSONDecodeError as error:
        return not_json(error)
    except RecursionError:
        return "not JSON, too many brackets within brackets"
    return "a JSON text, expected an object" if isinstance(value, str) else value


def _object(value) -> dict | str:
    if isinstance(value, (dict, str)):
        return value
    return f"a JSON {type(value).__name__}, expected an object"

"""Read files of rows: JSON lines, one JSON list, or Parquet. A row that is no entry is a fault with its place and
reason."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic

from data_tools.dialogues.dialogue import Entry, Schema, find_schema
from data_tools.dialogues.messages import Dialogue, RowError
from data_tools.formats.errors import DataError
from data_tools.formats.json_files import BOM, NotJson, not_utf8, parse_json
from data_tools.formats.plural import plural

FIRST_ROWS = 10  # of which the schema is found
FAULTS_SHOWN = 5
UNUSED_SHOWN = 10
A_TEXT = "a JSON text, expected an object"
PARQUET_ROWS = 1000  # that are in memory at a time


@dataclass(frozen=True)
class Fault:
    file: str
    line: int  # 1 for the first; in a JSON list or Parquet the number of the row
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


@dataclass(frozen=True)
class Rows(Generic[Entry]):
    """What a file holds. entries: such as dialogues; lines: that of each. faults: its rows that are none, in order.
    unused: keys of which nothing is made, and in how many rows each is."""

    file: str
    entries: list[Entry]
    lines: list[int]
    schema: Schema[Entry]
    faults: list[Fault]
    unused: Counter[str]


def read_rows(file: str | Path, prompt_column: str | None = None, response_column: str | None = None) -> Rows[Dialogue]:
    """All dialogues of a file, by the schema that its first whole rows have, or by the columns named.

    Raises DataError when the file cannot be read, no schema fits, or no row is a dialogue.
    """
    return read_entries(file, partial(find_schema, prompt_column=prompt_column, response_column=response_column))


def read_entries(file: str | Path, find: Callable[[list[dict]], Schema[Entry]]) -> Rows[Entry]:
    """All entries of a file. find: the schema from its first whole rows. Raises DataError as read_rows."""
    rows = records(Path(file))
    first = list(itertools.islice(rows, FIRST_ROWS))
    if not first:
        raise DataError(f"{file}: the file is empty. Give one with rows.")
    if all(isinstance(record, str) for _, record in first):
        raise DataError(f"{file}: none of the first rows can be read. Line {first[0][0]}: {first[0][1]}.")
    try:
        whole = [record for _, record in first if isinstance(record, dict)]
        schema = find(whole)
    except DataError as error:
        broken = next((f" Line {line}: {record}." for line, record in first if isinstance(record, str)), "")
        raise DataError(f"{file}: {error}{broken}") from None
    entries, lines, faults, unused = [], [], [], Counter()
    for line, record in itertools.chain(first, rows):
        try:
            if isinstance(record, str):
                raise RowError(record)
            entries.append(schema.read(record))
            lines.append(line)
            unused.update(set(schema.unused(record)))
        except RowError as error:
            faults.append(Fault(str(file), line, str(error)))
    if not entries:
        raise DataError(f"{file}: no row can be used, {plural(len(faults), 'broken row')}. {faults[0]}")
    return Rows(str(file), entries, lines, schema, faults, unused)


def unused_line(files: Iterable[Rows]) -> str:
    """Which keys nothing is made of: "" where there are none."""
    counts = sum((rows.unused for rows in files), Counter())
    names = [f"{name} ({plural(count, 'row')})" for name, count in counts.most_common(UNUSED_SHOWN)]
    more = f" and {len(counts) - UNUSED_SHOWN} more" if len(counts) > UNUSED_SHOWN else ""
    return f"keys that are not used: {', '.join(names)}{more}" if names else ""


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
    if file.suffix == ".parquet":
        yield from _of_parquet(file)
        return
    try:
        with open(file, "rb") as lines:
            begin = len(BOM) if lines.read(len(BOM)) == BOM else 0
            lines.seek(begin)
            start = lines.read(64).lstrip()
            lines.seek(begin)
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
        yield number, A_TEXT if isinstance(row, str) else _object(row)


def _of_parquet(file: Path) -> Iterator[tuple[int, dict | str]]:
    import pyarrow  # takes a tenth of a second
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(file) as parquet:
            number = 1
            for batch in parquet.iter_batches(PARQUET_ROWS, use_threads=False):
                yield from enumerate(_rows_of(batch, file), start=number)
                number += len(batch)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{file} cannot be read as Parquet: {error}. Copy or make it again.") from None


def _rows_of(batch, file: Path) -> list[dict | str]:
    try:
        return batch.to_pylist()
    except UnicodeDecodeError as error:  # some row's: each for itself
        if len(batch) == 1:
            return [not_utf8(error, file)]
    return [row for place in range(len(batch)) for row in _rows_of(batch.slice(place, 1), file)]


def _parsed(content: bytes, file: Path) -> Any:
    """The JSON value, or the reason why it is none as a text."""
    try:
        value = parse_json(content, file)
    except NotJson as error:
        return str(error)
    return A_TEXT if isinstance(value, str) else value


def _object(value) -> dict | str:
    if isinstance(value, (dict, str)):
        return value
    return f"a JSON {type(value).__name__}, expected an object"

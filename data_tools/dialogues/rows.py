"""Read the entries of files of rows. A row that is no entry is a fault with its place and reason."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic

from data_tools.dialogues.dialogue import Entry, Schema, find_schema, refuse_media
from data_tools.dialogues.messages import Dialogue, RowError
from data_tools.formats.errors import DataError
from data_tools.formats.plural import plural
from data_tools.formats.records import records

FIRST_ROWS = 10  # of which the schema is found
FAULTS_SHOWN = 5
UNUSED_SHOWN = 10


@dataclass(frozen=True)
class Fault:
    """A row that cannot be read, and the reason."""

    file: str
    line: int  # 1 for the first; in a JSON list or Parquet the number of the row
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


@dataclass(frozen=True)
class Rows(Generic[Entry]):
    """The rows of one file.

    Attributes:
        entries: Such as dialogues.
        lines: The line of each entry.
        faults: Broken rows, in order.
        unused: Keys that are not used, with the number of rows that have each.
    """

    file: str
    entries: list[Entry]
    lines: list[int]
    schema: Schema[Entry]
    faults: list[Fault]
    unused: Counter[str]


def read_rows(file: str | Path, prompt_column: str | None = None, response_column: str | None = None) -> Rows[Dialogue]:
    """Return all dialogues of a file, by the schema that its first whole rows have, or by the columns named.

    Raises:
        DataError: If the file cannot be read, no schema fits, or no row is a dialogue.
    """
    return read_entries(file, partial(find_schema, prompt_column=prompt_column, response_column=response_column))


def read_entries(file: str | Path, find: Callable[[list[dict]], Schema[Entry]]) -> Rows[Entry]:
    """Return all entries of a file. find: picks the schema from the first whole rows.

    Raises:
        DataError: As read_rows.
    """
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
            refuse_media(record)
            entries.append(schema.read(record))
            lines.append(line)
            unused.update(set(schema.unused(record)))
        except RowError as error:
            faults.append(Fault(str(file), line, str(error)))
    if not entries:
        raise DataError(f"{file}: no row can be used, {plural(len(faults), 'broken row')}. {faults[0]}")
    return Rows(str(file), entries, lines, schema, faults, unused)


def unused_line(files: Iterable[Rows]) -> str:
    """Return the line that names unused keys, "" where there are none."""
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

"""Rows of foreign files: JSON lines, a JSON list (both also packed by gzip or zstd), CSV with a header, Parquet."""

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from data_tools.formats.errors import DataError
from data_tools.formats.json_files import BOM, ROWS, NotJson, RepeatedKey, not_json, not_utf8, parse_row, require_file

A_TEXT = "a JSON text, expected an object"
PARQUET_ROWS = 1000  # that are in memory at a time
REPEATED_BYTES = 1 << 29  # of values that are stored once, with all their repetitions in memory
PACKED = (".gz", ".zst")
DAMAGED = (OSError, EOFError, zlib.error)  # what reading a damaged packed file raises
LONGEST_LINE_BYTES = 1 << 28
LONGEST_LIST_BYTES = 1 << 31  # of a packed JSON list, which is read whole: a small file may hold any amount
BETWEEN = re.compile(r"[\s,]*")  # values of a list


def records(file: Path) -> Iterator[tuple[int, dict | str]]:
    """Yield (number, the row or the reason why it is none) for each row that is not blank."""
    require_file(file)
    if file.suffix in (".parquet", ".csv"):
        yield from _of_parquet(file) if file.suffix == ".parquet" else _of_csv(file)
        return
    try:
        with _opened(file) as lines:
            start = lines.read(len(BOM) + 64).removeprefix(BOM).lstrip()
        with _opened(file) as lines:
            yield from _of_list(_whole_list(lines, file), file) if start.startswith(b"[") else _of_lines(lines, file)
    except IsADirectoryError:
        raise DataError(f"{file}: a folder. Name the files in it, such as {file}/*.json.") from None
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}.") from None


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    """Open a file, unpacked where its name ends in .gz or .zst. Raise DataError where it is damaged."""
    with open(file, "rb") as stored:
        if file.suffix not in PACKED:
            yield stored
            return
        try:
            yield unpacked(stored, file.suffix)
        except DAMAGED as error:
            raise DataError(f"{file} cannot be unpacked: {error}. Copy or make it again.") from None


def unpacked(stored: BinaryIO, suffix: str) -> BinaryIO:
    """Return the content of a packed file whose name ends so; reading it may raise one of DAMAGED."""
    if suffix == ".gz":
        # pyarrow refuses zeros behind the end, with which tapes are filled.
        return cast(BinaryIO, gzip.GzipFile(fileobj=stored))
    import pyarrow  # takes a tenth of a second

    return io.BufferedReader(pyarrow.CompressedInputStream(stored, "zstd"))


def _whole_list(lines: BinaryIO, file: Path) -> bytes:
    content = lines.read(LONGEST_LIST_BYTES + 1 if file.suffix in PACKED else -1)
    if file.suffix in PACKED and len(content) > LONGEST_LIST_BYTES:
        raise DataError(
            f"{file}: a JSON list of more than {LONGEST_LIST_BYTES >> 20:,} MiB, which is read whole. Give JSON lines, "
            "one object a line, or unpack it."
        )
    return content.removeprefix(BOM)


def csv_rows(file: Path, longest: int = 1 << 17) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line and the values of each row of a CSV file (RFC 4180) that is not blank.

    longest: characters of a value, at most.

    Raises:
        DataError: With file and line, for a quote that nothing closes: it would swallow all rows behind it.
    """
    require_file(file)
    csv.field_size_limit(longest)
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: {not_utf8(error, file)}.") from None
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}.") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        line = reader.line_num + 1  # where the row begins: it may have several lines
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise DataError(f"{file}:{line}: {error}. Mend the row; is a quote missing?") from None
        if row is None:
            return
        if row:
            yield line, row


def _of_csv(file: Path) -> Iterator[tuple[int, dict | str]]:
    rows = csv_rows(file, longest=1 << 30)
    _, names = next(rows, (1, []))
    if len(set(names)) < len(names):
        raise DataError(f"{file}:1: found {', '.join(names)}, expected a name of its own for each column.")
    for line, row in rows:
        fits = len(row) == len(names)
        yield line, dict(zip(names, row, strict=True)) if fits else f"{len(row)} columns, expected {len(names)}"


def _of_lines(lines, file: Path) -> Iterator[tuple[int, dict | str]]:
    for number, line in enumerate(iter(partial(lines.readline, LONGEST_LINE_BYTES + 1), b""), start=1):
        if len(line) > LONGEST_LINE_BYTES:
            raise DataError(
                f"{file}:{number}: more than {LONGEST_LINE_BYTES >> 20} MiB without an end, too long for one row. Give "
                "JSON lines, one object a line."
            )
        line = line.removeprefix(BOM) if number == 1 else line
        if line.strip():
            yield number, _object(_parsed(line.rstrip(), file))


def _of_list(content: bytes, file: Path) -> Iterator[tuple[int, dict | str]]:
    """Yield the rows of a JSON list, by the lines that they begin at where it has a line for each at least."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        yield 1, not_utf8(error, file)
        return
    place, line, number = text.index("[") + 1, 1 + text[: text.index("[")].count("\n"), 0
    has_lines = "\n" in text.strip()
    while True:
        start = BETWEEN.match(text, place).end()  # pyright: ignore[reportOptionalMemberAccess]
        line += text.count("\n", place, start)
        if text[start : start + 1] == "]":
            return
        number += 1
        try:
            row, place = _row_at(text, start)
        except (ValueError, RecursionError) as error:
            reason = (
                not_json(error) if isinstance(error, json.JSONDecodeError) else f"JSON that Python refuses, {error}"
            )
            yield line if has_lines else number, reason
            return
        yield line if has_lines else number, A_TEXT if isinstance(row, str) else _object(row)
        line += text.count("\n", start, place)


def _row_at(text: str, start: int) -> tuple[Any, int]:
    """Return the value that begins there, the error where it has a key twice, and the place behind it."""
    try:
        return ROWS.raw_decode(text, start)
    except RepeatedKey as error:
        return error, json.JSONDecoder().raw_decode(text, start)[1]


def _of_parquet(file: Path) -> Iterator[tuple[int, dict | str]]:
    import pyarrow  # takes a tenth of a second
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(file) as parquet:
            number = 1
            for batch in parquet.iter_batches(most_rows(file, parquet.metadata, PARQUET_ROWS), use_threads=False):
                yield from enumerate(_rows_of(batch, file), start=number)
                number += len(batch)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{file} cannot be read as Parquet: {error}. Copy or make it again.") from None


def most_rows(file: str | Path, metadata, rows: int) -> int:
    """Return at most `rows`: the number of a Parquet file's rows that may safely be read at once.

    Dictionaries hold values of any length once, which rows may repeat.
    """
    columns = [
        metadata.row_group(g).column(c) for g in range(metadata.num_row_groups) for c in range(metadata.num_columns)
    ]
    with open(file, "rb") as stored:
        places = [column.dictionary_page_offset for column in columns if column.has_dictionary_page]
        longest = max((_unpacked_bytes(stored, place) for place in places), default=1)
    return max(1, min(rows, REPEATED_BYTES // longest))


def _unpacked_bytes(stored: BinaryIO, place: int) -> int:
    """Return the unpacked size of a page from its header (parquet.thrift, in Thrift's compact protocol).

    The size is the second field, behind the page's type; each field is a byte and a number in zigzag, seven bits a
    byte.
    """
    stored.seek(place)
    head = iter(stored.read(24))
    for _ in range(2):
        next(head, 0)
        number = shift = 0
        for byte in head:
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
    return max(1, number >> 1)


def _rows_of(batch, file: Path) -> list[dict | str]:
    try:
        return batch.to_pylist()
    except UnicodeDecodeError as error:  # some row's: each for itself
        if len(batch) == 1:
            return [not_utf8(error, file)]
    return [row for place in range(len(batch)) for row in _rows_of(batch.slice(place, 1), file)]


def _parsed(content: bytes, file: Path) -> Any:
    """Return the JSON value, or the reason why there is none as a text."""
    try:
        value = parse_row(content, file)
    except NotJson as error:
        return str(error)
    return A_TEXT if isinstance(value, str) else value


def _object(value) -> dict | str:
    if isinstance(value, (dict, str)):
        return value
    if isinstance(value, RepeatedKey):
        return str(value)
    return f"a JSON {type(value).__name__}, expected an object"

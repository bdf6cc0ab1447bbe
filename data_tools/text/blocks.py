"""Files in blocks: about a megabyte of whole lines, or rows, each, and the place where the next block begins.

A place is a number of bytes (of a packed file: unpacked) or of Parquet rows, so that reading can go on there after an
interruption. Memory is that of a block, or of the longest line; of a Parquet file, of a row group's texts.
"""

import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from data_tools.formats.errors import DataError
from data_tools.formats.json_files import BOM, shown
from data_tools.formats.records import DAMAGED, LONGEST_LINE_BYTES, PACKED, most_rows, unpacked

STDIN = "-"
LINES, TEXT, PARQUET = "lines", "text", "parquet"
KINDS = {".jsonl": LINES, ".json": LINES, ".txt": TEXT, ".parquet": PARQUET}
SUFFIXES = (*KINDS, *PACKED)

BLOCK_BYTES = 1 << 20
BLOCK_ROWS = 10_000


@dataclass(frozen=True)
class ReadingPlace:
    """The place to go on reading.

    Attributes:
        file: Its number in the list.
        offset: Bytes or rows before.
        line: The next one's number.
        checksum: CRC-32 of the bytes read of stdin, which nothing else identifies.
    """

    file: int = 0
    offset: int = 0
    line: int = 1
    checksum: int = 0


@dataclass(frozen=True)
class Block:
    """A block of input.

    Attributes:
        content: Bytes of whole lines; of a .txt all its bytes; of Parquet a list of texts, None for a missing one,
            bytes where some are not UTF-8.
        size: Bytes of the stored file (packed, if it is) that reading this block took.
        next: The place behind it.
    """

    file: str
    kind: str
    line: int
    content: bytes | list[str | bytes | None]
    size: int
    next: ReadingPlace


def kind_of(file: str) -> str | None:
    """Return "lines", "text" or "parquet", by the name without .gz or .zst; None for an unknown kind.

    A name with nothing left means JSON lines.
    """
    if file == STDIN:
        return LINES
    path = Path(file)
    if path.suffix in PACKED:
        kind = KINDS.get(path.with_suffix("").suffix, LINES)
        return None if kind == PARQUET else kind
    return KINDS.get(path.suffix)


def read_blocks(files: Iterable[str], text_key: str = "text", start: ReadingPlace | None = None) -> Iterator[Block]:
    """Yield all blocks from `start` on, file by file. text_key: the column of Parquet files.

    Raises:
        DataError: If a file cannot be read, is damaged, or when stdin differs from the earlier run's.
    """
    start = start or ReadingPlace()
    readers = {LINES: _lines, TEXT: _text, PARQUET: _parquet}
    for number, file in enumerate(files):
        if number < start.file:
            continue
        place = start if number == start.file else ReadingPlace(number)
        kind = kind_of(file)
        assert kind, f"{file}: find_files lets no such file through"
        yield from readers[kind](file, text_key, place)


def _lines(file: str, _, place: ReadingPlace) -> Iterator[Block]:
    with _opened(file) as stream:
        _skip(stream, place)
        stored = stream.stored()
        offset, line, checksum = place.offset, place.line, place.checksum
        for content, next_line in _whole_lines(stream, line):
            offset += len(content)
            checksum = zlib.crc32(content, checksum) if file == STDIN else 0
            size = stream.stored() - stored if stream.packed else len(content)
            if offset == len(content):  # the first of the file
                content = content.removeprefix(BOM)
            yield Block(file, LINES, line, content, size, ReadingPlace(place.file, offset, next_line, checksum))
            line, stored = next_line, stream.stored()


def _whole_lines(stream: "_Stream", line: int) -> Iterator[tuple[bytes, int]]:
    """Yield the rest of a stream, cut behind line ends, and the line number behind each piece.

    The last line may lack its end.

    line: number of the first line.
    """
    pieces = []
    while chunk := stream.read(BLOCK_BYTES):
        end = chunk.rfind(b"\n") + 1
        if not end:  # a line longer than a block
            pieces.append(chunk)
            _check_length(pieces, stream.file, line)
            continue
        content = b"".join([*pieces, chunk[:end]])
        pieces = [chunk[end:]]
        line += content.count(b"\n")
        yield content, line
    if rest := b"".join(pieces):
        yield rest, line


def _text(file: str, _, place: ReadingPlace) -> Iterator[Block]:
    if place.offset:
        return
    with _opened(file) as stream:
        pieces = []
        while piece := stream.read(BLOCK_BYTES):
            pieces.append(piece)
            _check_length(pieces, file, 1)
        content = b"".join(pieces)
        next_place = ReadingPlace(place.file, max(1, len(content)), 2)
        yield Block(file, TEXT, 1, content.removeprefix(BOM), stream.stored(), next_place)


def _parquet(file: str, text_key: str, place: ReadingPlace) -> Iterator[Block]:
    import pyarrow  # only here: 0.2 s
    from pyarrow.parquet import ParquetFile

    stored = os.path.getsize(file)
    try:
        with ParquetFile(file, pre_buffer=False) as parquet:
            _check_column(parquet, file, text_key)
            rows = parquet.metadata.num_rows
            groups, first = _groups_from(parquet.metadata, place.offset)
            if not groups:
                return
            group_sizes = (parquet.metadata.row_group(group).total_byte_size for group in range(parquet.num_row_groups))
            of_a_block = max(1, min(BLOCK_ROWS, BLOCK_BYTES * rows // max(1, sum(group_sizes))))
            size = most_rows(file, parquet.metadata, of_a_block)
            for batch in parquet.iter_batches(size, groups, [text_key], use_threads=False):
                done = max(0, place.offset - first)
                begin, first = first + done, first + len(batch)
                if begin < first:
                    size = stored * first // rows - stored * begin // rows
                    texts = _texts_of(batch.column(0).slice(done))
                    yield Block(file, PARQUET, begin + 1, texts, size, ReadingPlace(place.file, first, first + 1))
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{file} cannot be read as Parquet: {error}. Copy or make it again.") from None


def _check_column(parquet, file: str, text_key: str) -> None:
    columns = {field.name: field.type for field in parquet.schema_arrow}
    if text_key not in columns or not _is_text(columns[text_key]):
        found = ", ".join(f"{shown(name)} ({kind})" for name, kind in columns.items()) or "none"
        raise DataError(f"{file}: no column of texts {text_key!r}; there are {found}. Name one by --text_key.")


def _texts_of(column) -> list[str | bytes | None]:
    """Return the texts of a column; as bytes where some are not UTF-8, so that each is reported with its row."""
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        entries = (getattr(value, "value", value) for value in column)  # of a dictionary: what it stands for
        return [value.as_buffer().to_pybytes() if value is not None and value.is_valid else None for value in entries]


def _is_text(kind) -> bool:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _groups_from(metadata, row: int) -> tuple[list[int], int]:
    """Return the row groups from the one with this row on, and the number of their first row."""
    first = 0
    for group in range(metadata.num_row_groups):
        behind = first + metadata.row_group(group).num_rows
        if row < behind:
            return list(range(group, metadata.num_row_groups)), first
        first = behind
    return [], first


class _Stream:
    """A file, unpacked where it is packed, or stdin. `stored()`: the bytes of the stored file read so far."""

    def __init__(self, file: str):
        self.file = file
        suffix = Path(file).suffix
        self.packed = suffix in PACKED
        if self.packed:
            if not os.path.getsize(file):
                raise DataError(f"{file} has 0 bytes, which no packed file has: a copy that failed. Copy it again.")
            self._stored = open(file, "rb", buffering=0)
            self._content = unpacked(self._stored, suffix)
        else:
            self._stored = self._content = sys.stdin.buffer if file == STDIN else open(file, "rb", buffering=0)
        self._read = 0

    def read(self, size: int) -> bytes:
        """Return `size` bytes, fewer at the end alone."""
        pieces, missing = [], size
        while missing and (piece := self._read_piece(missing)):
            pieces.append(piece)
            missing -= len(piece)
        self._read += size - missing
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read_piece(self, size: int) -> bytes:
        try:
            return self._content.read(size)
        except DAMAGED as error:
            raise DataError(f"{self.file} cannot be read: {error}. Copy or make it again.") from None

    def stored(self) -> int:
        return self._stored.tell() if self.packed else self._read

    def seek(self, offset: int) -> bool:
        """Go to a byte of the unpacked content, where that needs no reading."""
        if self.file == STDIN or self.packed:
            return False
        self._content.seek(offset)
        self._read = offset
        return True


@contextmanager
def _opened(file: str) -> Iterator[_Stream]:
    stream = _Stream(file)
    try:
        yield stream
    finally:
        if file != STDIN:
            stream._content.close()
            stream._stored.close()


def _skip(stream: _Stream, place: ReadingPlace) -> None:
    """Go to a place. Raises DataError when what lies before it is not what was read then."""
    if not place.offset or stream.seek(place.offset):
        return
    missing, checksum = place.offset, 0
    while missing:
        piece = stream.read(min(missing, BLOCK_BYTES))
        if not piece:
            break
        missing -= len(piece)
        checksum = zlib.crc32(piece, checksum) if place.checksum else 0
    if missing or checksum != place.checksum:
        raise DataError(
            f"{'stdin' if stream.file == STDIN else stream.file}: not the text that was read before the interruption. "
            "Give the same, or begin anew with --restart."
        )


def _check_length(pieces: list[bytes], file: str, line: int) -> None:
    if sum(map(len, pieces)) > LONGEST_LINE_BYTES:
        raise DataError(
            f"{file}:{line}: more than {LONGEST_LINE_BYTES >> 20} MiB without an end, too long for one document. "
            "Give JSON lines, one object a line."
        )

"""Documents of text from files: JSON lines, Parquet, or .txt (one file one document), packed or not, or stdin.

Reading goes in two steps, so that the costly one can be shared among processes: `read_blocks` cuts files into
blocks of whole lines or rows, `documents` makes the texts of one block.
"""

import glob
import io
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from data_tools.formats.errors import DataError
from data_tools.formats.folders import say_left_out, visible_files
from data_tools.formats.json_files import NotJson, not_utf8, parse_row, quoted, shown, with_fix
from data_tools.text.blocks import LINES, STDIN, SUFFIXES, TEXT, Block, kind_of, read_blocks


@dataclass(frozen=True)
class Document:
    """A document of the input."""

    text: str
    file: str
    line: int  # 1 for the first; in Parquet the number of the row
    size: int  # bytes of its line, or of its text

    @property
    def where(self) -> str:
        """File and line, for messages."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class BadLine:
    """A line that is no document. `reason` names file and line, what is wrong and what mends it."""

    reason: str


class BadLines:
    """Counts and reports the lines left out; more than allowed are an error.

    Attributes:
        count: So far, by an earlier run too.
    """

    def __init__(self, allowed: int, count: int = 0):
        self.allowed, self.count = allowed, count

    def add(self, reasons: list[str]) -> None:
        """Count bad lines.

        Raises:
            DataError: With the first line beyond the allowed number.
        """
        for reason in reasons:
            self.count += 1
            if self.count > self.allowed:
                before = f" {self.allowed} before it were left out." if self.allowed else ""
                raise DataError(f"{reason} Or leave such lines out: --max_bad_lines N.{before}")
            print(f"left out: {reason}", file=sys.stderr, flush=True)


def find_files(inputs: Iterable[str]) -> list[str]:
    """Return the files that --input names, in the order of their names within a folder or pattern.

    Each input is a file, a folder (all files of a known kind in it and below, without hidden ones; a line names the
    others), a pattern such as "texts/*.jsonl.gz", or - for stdin.

    Raises:
        DataError: If there is none, or one of unknown kind.
    """
    files = [file for named in inputs for file in _files_of(str(named))]
    for file in files:
        if not kind_of(file):
            raise DataError(f"{file}: unknown kind of file. Known are {', '.join(SUFFIXES)}: rename or convert it.")
    if STDIN in files and len(files) > 1:
        raise DataError("- (stdin) is given along with other files: give it alone.")
    return files


def _files_of(named: str) -> list[str]:
    if named == STDIN or os.path.isfile(named):
        return [named]
    if os.path.isdir(named):
        inside = sorted(map(str, visible_files(named)))
        files = [file for file in inside if kind_of(file)]
        if files and (others := [Path(file) for file in inside if not kind_of(file)]):
            say_left_out(named, others, f"of another kind (known are {', '.join(SUFFIXES)})")
    else:
        files = sorted(file for file in glob.glob(named, recursive=True) if os.path.isfile(file))
    if not files:
        raise DataError(
            f"{named} is not a file, and no folder or pattern with files. Name files that end in {', '.join(SUFFIXES)}."
        )
    return files


def total_bytes(files: Iterable[str]) -> int:
    """Return the size of all files together; stdin's is unknown and counts as 0."""
    return sum(os.path.getsize(file) for file in files if file != STDIN)


def read_documents(files: Iterable[str], text_key: str = "text", max_bad_lines: int = 0) -> Iterator[Document]:
    """Yield all documents, file by file, in order; blank lines between JSON objects are passed over.

    Raises:
        DataError: Naming file and line, where more lines than allowed are no JSON object with a text at `text_key`.
    """
    bad_lines = BadLines(max_bad_lines)
    for block in read_blocks(files, text_key):
        for document in documents(block, text_key):
            if isinstance(document, BadLine):
                bad_lines.add([document.reason])
            else:
                yield document


def documents(block: Block, text_key: str = "text") -> Iterator[Document | BadLine]:
    """Yield the documents of a block, and a BadLine for each line that is none. An empty text is a document."""
    for number, content in _lines_of(block):
        where = f"{block.file}:{number}"
        try:
            if block.kind == LINES and isinstance(content, bytes):
                text = _text_of_line(content, text_key, where)
            elif content is None:
                raise DataError(f"{where}: no text, the row is null. Mend or remove the row.")
            else:
                text = _decoded(content, where) if isinstance(content, bytes) else content
        except DataError as error:
            yield BadLine(str(error))
        else:
            yield Document(text, block.file, number, len(content or ""))


def batches(documents: Iterable[Document], batch_bytes: int = 1 << 22) -> Iterator[list[Document]]:
    """Yield documents in lists of about `batch_bytes`, at least one in each."""
    batch, size = [], 0
    for document in documents:
        batch.append(document)
        size += document.size
        if size >= batch_bytes:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _lines_of(block: Block) -> Iterator[tuple[int, bytes | str | None]]:
    """Yield (number, content) of each line that is not blank, of each row, or of the whole .txt."""
    if isinstance(block.content, list):  # of Parquet
        yield from enumerate(block.content, start=block.line)
    elif block.kind == TEXT:
        yield block.line, block.content
    else:
        for number, line in enumerate(io.BytesIO(block.content), start=block.line):
            if not line.isspace():
                yield number, line


def _text_of_line(line: bytes, text_key: str, where: str) -> str:
    try:
        record = parse_row(line.rstrip(), where.rpartition(":")[0])
    except NotJson as error:
        raise DataError(f"{where}: {with_fix(str(error))}") from None
    if not isinstance(record, dict):
        raise DataError(f'{where}: a JSON {type(record).__name__}, expected an object such as {{"{text_key}": ...}}.')
    if not isinstance(record.get(text_key), str):
        if text_key in record:
            found = "null" if record[text_key] is None else quoted(record[text_key])
            raise DataError(f"{where}: {text_key!r} is {found}, expected a text. Mend or remove the line.")
        raise DataError(
            f"{where}: no text at key {text_key!r}; the keys are {', '.join(map(shown, record)) or 'none'}. Name one "
            "by --text_key."
        )
    if b"\\u" in line:  # UTF-8 itself has none
        _check_surrogates(record[text_key], where)
    return record[text_key]


def _check_surrogates(text: str, where: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(
            f"{where}: half a surrogate pair (\\ud800 to \\udfff) is no character. Mend the line."
        ) from None


def _decoded(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: {not_utf8(error, where.rpartition(':')[0])}.") from None

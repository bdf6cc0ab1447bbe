"""Documents of text from files: JSONL, one object a line; or .txt, one file one document."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from data_tools.formats.errors import DataError

SUFFIXES = (".jsonl", ".json", ".txt")


@dataclass(frozen=True)
class Document:
    text: str
    file: str
    line: int  # 1 for the first
    size: int  # bytes it takes in its file

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"


def total_bytes(files: Iterable[str]) -> int:
    """The size of all files together. Raises DataError when one is missing or of an unknown kind."""
    for file in files:
        if not Path(file).is_file():
            raise DataError(f"{file} is not a file. Name files that end in {', '.join(SUFFIXES)}.")
        if Path(file).suffix not in SUFFIXES:
            raise DataError(
                f"{file}: unknown kind of file. Known are {', '.join(SUFFIXES)}: rename or convert it."
            )
    return sum(Path(file).stat().st_size for file in files)


def read_documents(files: Iterable[str], text_key: str = "text") -> Iterator[Document]:
    """All documents, file by file, in order; blank lines between JSON objects are passed over.

    Raises DataError, naming file and line, at the first line that is not a JSON object with a text at
    `text_key`.
    """
    for file in files:
        if Path(file).suffix == ".txt":
            content = Path(file).read_bytes()
            yield Document(_decoded(content, f"{file}:1"), file, 1, len(content))
            continue
        with open(file, "rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.isspace():
                    yield Document(_text_of(line, text_key, f"{file}:{number}"), file, number, len(line))


def batches(documents: Iterable[Document], batch_bytes: int = 1 << 22) -> Iterator[list[Document]]:
    """Documents in lists of about `batch_bytes`, at least one in each."""
    batch, size = [], 0
    for document in documents:
        batch.append(document)
        size += document.size
        if size >= batch_bytes:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _text_of(line: bytes, text_key: str, where: str) -> str:
    try:
        record = json.loads(_decoded(line.rstrip(), where))
    except json.JSONDecodeError as error:
        raise DataError(
            f"{where}: not JSON, {error.msg} at column {error.colno}. Mend or remove the line."
        ) from None
    if not isinstance(record, dict):
        raise DataError(
            f'{where}: a JSON {type(record).__name__}, expected an object such as {{"{text_key}": ...}}.'
        )
    if not isinstance(record.get(text_key), str):
        raise DataError(
            f"{where}: no text at key {text_key!r}; the keys are {', '.join(record)}. Name one by --text_key."
        )
    text = record[text_key]
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(
            f"{where}: half a surrogate pair (\\ud800 to \\udfff) is no character. Mend the line."
        ) from None
    return text


def _decoded(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: not UTF-8 at byte {error.start}. Convert the file to UTF-8.") from None

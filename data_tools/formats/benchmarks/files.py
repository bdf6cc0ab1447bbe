"""A benchmark's files: the splits that they hold, and their rows.

CSV (with a line of names, or MMLU's without), JSON lines, a JSON list, SQuAD's JSON or Parquet. The split of a file is
in its name or in that of its folder, as published: abstract_algebra_test.csv, val/accountant.csv,
test-00000-of-00001.parquet. A file is read whole or refused.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from data_tools.formats.benchmarks.published import FORMS, NoQuestion, columns, form_of, of_articles
from data_tools.formats.errors import DataError
from data_tools.formats.folders import visible_files
from data_tools.formats.json_files import not_utf8, quoted, read_object, shown, with_fix
from data_tools.formats.records import csv_rows, records

SPLITS = {"test": "test", "val": "val", "valid": "val", "validation": "val", "dev": "dev", "train": "train"}
ENDINGS = (".csv", ".json", ".jsonl", ".parquet")
WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
MMLU_COLUMNS = ["question", "A", "B", "C", "D", "answer"]
# MMLU's folder of questions from other benchmarks, which no task of it asks. One of its files is mc_test.csv.
AUXILIARY = "auxiliary_train"
PLACE, SUBJECT = "row_place", "row_subject"  # columns that each row is given: file and line, and the subject


def files_of(path: Path) -> dict[str, list[Path]]:
    """Return the files of each split; a single file is the split that its name says, or else the test."""
    if path.is_file():
        if path.suffix not in ENDINGS:
            raise DataError(f"{path}: unknown kind of file. Known are {', '.join(ENDINGS)}: rename or convert it.")
        return {_split_of(path) or "test": [path]}
    if not path.is_dir():
        raise DataError(f"{path}: neither a file nor a folder. Name that of a benchmark.")
    found: dict[str, list[Path]] = {}
    for file in visible_files(path):
        split = None if file.parent.name == AUXILIARY else _split_of(file)
        if split and file.suffix in ENDINGS:
            found.setdefault(split, []).append(file)
    if not found:
        raise DataError(
            f"{path}: no files {', '.join(ENDINGS)} whose name or folder says a split ({', '.join(SPLITS)}). Name one "
            "file, or name the files after their splits."
        )
    return found


def _split_of(file: Path) -> str | None:
    words = [*re.split(r"[_.-]", file.stem.lower())[::-1], file.parent.name.lower()]
    return next((SPLITS[word] for word in words if word in SPLITS), None)


def _subject_of(file: Path) -> str:
    """Return the subject in a file's name or folder.

    It is accountant for accountant_val.csv, val/accountant.csv and accountant/val-00000-of-00001.parquet.
    """
    splits = "|".join(SPLITS)
    if re.fullmatch(rf"({splits})(-\d+-of-\d+)?", file.stem):
        return file.parent.name
    return re.sub(rf"[_-]({splits})$", "", file.stem)


def find_form(files: list[Path]) -> str:
    """Return the name of the form that the first row has.

    Raises:
        DataError: If the form is unknown.
    """
    for file in files:
        first = next(_rows(file), None)
        if first is None:
            continue
        name = form_of(first[1])
        if name:
            return name
        known = "; ".join(f"{known} ({', '.join(of.keys)})" for known, of in FORMS.items())
        raise DataError(
            f"{file}: the keys {', '.join(map(shown, first[1]))} are those of no benchmark known here: {known}. Name "
            "a task of lm-eval, NAME=PATH, or write one in YAML (docs/evaluate.md)."
        )
    raise DataError(f"{files[0]}: no questions. Name a file that has some.")


def read_benchmark(files: list[Path], form: str | None) -> list[dict]:
    """Return all rows, in the columns of a form, or unchanged where `form` is None; each with PLACE and SUBJECT.

    Raises:
        DataError: With file and row, for a damaged or repeated row.
    """
    found: list[dict] = []
    seen: dict[tuple[str, str], Path] = {}
    for file in files:
        for line, row in _rows(file):
            place = f"{file}:{line}"
            subject = row.get("subject") if form is None or FORMS[form].subjects else None
            if subject is not None and not isinstance(subject, str):
                raise DataError(f"{place}: subject: found {quoted(subject)}, expected a text, or none.")
            try:
                asked = columns(form, row) if form else row
            except NoQuestion as error:
                raise DataError(f"{place}: {error}.") from None
            text = json.dumps(asked, ensure_ascii=False, default=str)
            try:
                text.encode()
            except UnicodeEncodeError:
                raise DataError(
                    f"{place}: half a surrogate pair (\\ud800 to \\udfff) is no character. Mend the line."
                ) from None
            subject = subject or _subject_of(file)
            if seen.setdefault((subject, text), file) != file:
                raise DataError(
                    f"{place}: the same question as in {seen[subject, text]}. Name the folder of one configuration."
                )
            found.append(asked | {PLACE: place, SUBJECT: subject})
    if not found:
        raise DataError(f"{files[0]}: no questions. Name a file that has some.")
    if form is None and files[0].suffix == ".csv":  # columns of whole numbers are numbers to lm-eval's tasks
        for key in found[0]:
            if all(WHOLE.fullmatch(str(row.get(key))) for row in found):
                found = [row | {key: int(row[key])} for row in found]
    folders = sorted({str(file.parent) for file in files})
    if form and not FORMS[form].subjects and len(folders) > 1:
        raise DataError(f"{', '.join(folders)}: several configurations of {form}. Name the folder of one.")
    return found


def _rows(file: Path) -> Iterator[tuple[int, dict]]:
    """Yield (line, or number of the row from 1; row)."""
    rows = _csv_rows(file) if file.suffix == ".csv" else _json_rows(file)
    labels = file.with_name(f"{file.stem}-labels.lst")
    return _labelled(rows, file, labels) if labels.is_file() else rows


def _labelled(rows: Iterator[tuple[int, dict]], file: Path, labels: Path) -> Iterator[tuple[int, dict]]:
    """Yield rows with PIQA's answers: valid.jsonl has them in valid-labels.lst."""
    try:
        answers = labels.read_text(encoding="utf-8").split()
    except UnicodeDecodeError as error:
        raise DataError(f"{labels}: {not_utf8(error, labels)}.") from None
    found = list(rows)
    if len(found) != len(answers):
        raise DataError(
            f"{labels}: found {len(answers)} labels, expected {len(found)}, as many as {file} has rows. Copy both "
            "again."
        )
    for (line, row), answer in zip(found, answers, strict=True):
        yield line, {"label": answer} | row


def _json_rows(file: Path) -> Iterator[tuple[int, dict]]:
    for line, row in records(file):
        if line == 1 and (isinstance(row, str) or "data" in row) and (articles := _articles(file)) is not None:
            yield from enumerate(articles, start=1)
            return
        if isinstance(row, str):
            raise DataError(f"{file}:{line}: {with_fix(row)}")
        yield line, row


def _articles(file: Path) -> list[dict] | None:
    """Return the rows of a file that is one JSON object, on one line or many; None for other files."""
    try:
        return list(of_articles(read_object(file)))
    except (DataError, KeyError, TypeError, AttributeError):
        return None


def _csv_rows(file: Path) -> Iterator[tuple[int, dict]]:
    """Yield the rows of a CSV file.

    Its first line has the names of the columns, except in MMLU's files, which have none.
    """
    names: list[str] | None = None
    for line, row in csv_rows(file):
        if names is None:
            # Names are a benchmark's, or another number of values than MMLU's rows.
            if len(row) != len(MMLU_COLUMNS) or any(set(row) >= set(form.keys) for form in FORMS.values()):
                names = row
                continue
            names = MMLU_COLUMNS
        if len(row) != len(names):
            raise DataError(
                f"{file}:{line}: found {len(row)} columns, expected {len(names)}. Mend the row; is a quote missing?"
            )
        yield line, dict(zip(names, row, strict=True))

"""A benchmark's files: which are evaluated, which give examples, and their rows.

CSV (with a line of names, or MMLU's without), JSON lines, a JSON list, SQuAD's JSON or Parquet. The split of a file is
in its name or in that of its folder, as published: abstract_algebra_test.csv, val/accountant.csv,
test-00000-of-00001.parquet.
"""

import csv
import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from data_tools.formats.benchmarks.forms import FORMS, form_of
from data_tools.formats.benchmarks.questions import BETWEEN_SHOTS, NoQuestion, Question
from data_tools.formats.benchmarks.written import of_articles
from data_tools.formats.dialogues.rows import records
from data_tools.formats.errors import DataError
from data_tools.formats.json_files import not_utf8, read_object, shown, with_fix

SPLITS = {"test": "test", "val": "val", "valid": "val", "validation": "val", "dev": "dev", "train": "train"}
EVALUATED = ("test", "val", "dev")  # the first that is there, where no split is named
EXAMPLES = ("dev", "train", "val")  # the first that is there and is not evaluated
ENDINGS = (".csv", ".json", ".jsonl", ".parquet")
MMLU_COLUMNS = ["question", "A", "B", "C", "D", "answer"]
# MMLU's folder of questions from other benchmarks, which no task of it asks. One of its files is mc_test.csv.
AUXILIARY = "auxiliary_train"


@dataclass(frozen=True)
class Asked:
    """A question, the file and row that it is from, what is said about its subject, and the examples before it."""

    question: Question
    place: str
    about: str
    shots: tuple[Question, ...]

    @property
    def before(self) -> str:
        """All text before the question where no chat template is used."""
        return self.about + "".join(shot.pair + BETWEEN_SHOTS for shot in self.shots)


def read_benchmark(path: Path, form: str | None, split: str | None, shots: int) -> tuple[str, list[Asked]]:
    """(the name of the form, all questions of the evaluated split).

    form: None finds it from the first row. split: None takes the first of EVALUATED that is there. shots: examples
    before each question, the first of its subject. Raises DataError, with file and row, where something is missing.
    """
    splits = _files(path)
    chosen = next((name for name in ([split] if split else EVALUATED) if name in splits), None)
    if chosen is None:
        raise DataError(
            f"{path}: no files of the split {split or ', '.join(EVALUATED)}; there are those of "
            f"{', '.join(sorted(splits))}. Name one of these: --split."
        )
    name, questions = _questions(splits[chosen], form)
    examples: dict[str, list[Question]] = {}
    if shots:
        source = next((other for other in EXAMPLES if other in splits and other != chosen), None)
        if source is None:
            raise DataError(
                f"{path}: no files to take {shots} examples from: a folder with a split named {', '.join(EXAMPLES)} "
                "beside the evaluated one has them. Or ask without: --num_fewshot 0."
            )
        for _, example in _questions(splits[source], name)[1]:
            examples.setdefault(example.subject, []).append(example)
    description = FORMS[name].description
    asked = []
    for place, question in questions:
        given = examples.get(question.subject, [])
        if len(given) < shots:
            raise DataError(
                f"{place}: --num_fewshot: found {shots}, there are {len(given)} examples of the subject "
                f"{question.subject!r}. Ask for fewer, or add some."
            )
        about = description(question.subject) if description and question.subject else ""
        asked.append(Asked(question, place, about, tuple(given[:shots])))
    return name, asked


def _files(path: Path) -> dict[str, list[Path]]:
    """The files of each split; a single file is the split that its name says, or else the test."""
    if path.is_file():
        if path.suffix not in ENDINGS:
            raise DataError(f"{path}: unknown kind of file. Known are {', '.join(ENDINGS)}: rename or convert it.")
        return {_split_of(path) or "test": [path]}
    if not path.is_dir():
        raise DataError(f"{path}: neither a file nor a folder. Name that of a benchmark.")
    found: dict[str, list[Path]] = {}
    for file in sorted(path.rglob("*")):
        split = None if file.parent.name == AUXILIARY else _split_of(file)
        if split and file.suffix in ENDINGS and file.is_file():
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
    """accountant of accountant_val.csv, val/accountant.csv or accountant/val-00000-of-00001.parquet."""
    splits = "|".join(SPLITS)
    if re.fullmatch(rf"({splits})(-\d+-of-\d+)?", file.stem):
        return file.parent.name
    return re.sub(rf"[_-]({splits})$", "", file.stem)


def _questions(files: list[Path], form: str | None) -> tuple[str, list[tuple[str, Question]]]:
    questions, seen = [], {}
    for file in files:
        rows = _rows(file)
        first = next(rows, None)
        if first is None:
            continue
        form = form or form_of(first[1])
        if form is None:
            known = "; ".join(f"{known} ({', '.join(of.keys)})" for known, of in FORMS.items())
            raise DataError(
                f"{file}: the keys {', '.join(map(shown, first[1]))} are those of no benchmark known here: {known}."
            )
        for line, row in itertools.chain([first], rows):
            place = f"{file}:{line}"
            question = _question(row, form, place)
            if FORMS[form].description and not question.subject:
                question = replace(question, subject=_subject_of(file))
            other = seen.setdefault((question.subject, question.pairs), file)
            if other != file:
                raise DataError(f"{place}: the same question as in {other}. Name the folder of one configuration.")
            questions.append((place, question))
    if not questions or form is None:
        raise DataError(f"{files[0]}: no questions. Name a file that has some.")
    folders = sorted({str(file.parent) for file in files})
    if FORMS[form].description is None and len(folders) > 1:
        raise DataError(f"{', '.join(folders)}: several configurations of {form}. Name the folder of one.")
    return form, questions


def _question(row: dict, form: str, place: str) -> Question:
    try:
        question = FORMS[form].read(row)
    except NoQuestion as error:
        raise DataError(f"{place}: {error}.") from None
    try:
        "".join([question.subject, *itertools.chain(*question.pairs)]).encode()
    except UnicodeEncodeError:
        raise DataError(
            f"{place}: half a surrogate pair (\\ud800 to \\udfff) is no character. Mend the line."
        ) from None
    return question


def _rows(file: Path) -> Iterator[tuple[int, dict]]:
    """(line, or number of the row from 1; row)"""
    rows = _csv_rows(file) if file.suffix == ".csv" else _json_rows(file)
    labels = file.with_name(f"{file.stem}-labels.lst")
    return _labelled(rows, file, labels) if labels.is_file() else rows


def _labelled(rows: Iterator[tuple[int, dict]], file: Path, labels: Path) -> Iterator[tuple[int, dict]]:
    """PIQA keeps the answers of valid.jsonl in valid-labels.lst."""
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
    """The rows of a file that is one object, on one line or many; None: it is another."""
    try:
        return list(of_articles(read_object(file)))
    except (DataError, KeyError, TypeError, AttributeError):
        return None


def _csv_rows(file: Path) -> Iterator[tuple[int, dict]]:
    """The first line has the names of the columns, but in MMLU's files, which have none."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: {not_utf8(error, file)}.") from None
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}.") from None
    reader = csv.reader(io.StringIO(text, newline=""))
    names: list[str] | None = None
    while True:
        line = reader.line_num + 1  # where the row begins: it may have several lines
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise DataError(f"{file}:{line}: {error}. Mend the row; is a quote missing?") from None
        if row is None:
            return
        if not row:  # a blank line
            continue
        if names is None:
            if _has_names(row):
                names = row
                continue
            names = MMLU_COLUMNS
        if len(row) != len(names):
            raise DataError(
                f"{file}:{line}: found {len(row)} columns, expected {len(names)}. Mend the row; is a quote missing?"
            )
        yield line, dict(zip(names, row, strict=True))


def _has_names(row: list[str]) -> bool:
    """Whether the first row of a file has names: those of a benchmark, or not as many values as MMLU's have."""
    return len(row) != len(MMLU_COLUMNS) or any(set(row) >= set(form.keys) for form in FORMS.values())

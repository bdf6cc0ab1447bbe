"""From --dataset_name_or_path to files of dialogues, and from these to the samples of fine-tuning."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol

from data_tools.dialogues.dialogue import Entry
from data_tools.dialogues.encoding import Encoded, Encoding, check_lengths, encode_dialogues
from data_tools.dialogues.messages import Dialogue
from data_tools.dialogues.rows import FIRST_ROWS, Fault, Rows, check_faults, read_rows, unused_line
from data_tools.dialogues.samples import BlendedDialogues, DialogueDataset, PackedDialogues
from data_tools.formats.blended import weighted_paths
from data_tools.formats.errors import DataError
from data_tools.formats.folders import say_left_out, visible_files
from data_tools.formats.plural import plural
from data_tools.formats.records import PACKED

LINES = (".json", ".jsonl")
SUFFIXES = (*LINES, ".csv", ".parquet", *(f"{suffix}{packed}" for suffix in LINES for packed in PACKED))
SPLITS = {"train": ("train",), "dev": ("dev", "validation", "valid", "eval", "test")}  # names of files, in this order
TRAIN = re.compile(r"(?<![A-Za-z])train(?![A-Za-z])")
PART = re.compile(r"(\d+)-of-(\d+)")


@dataclass(frozen=True)
class Source:
    """One dataset.

    Attributes:
        weight: None where each sample is used once.
        train, dev: Its files, dev perhaps without any.
    """

    weight: float | None
    train: tuple[Path, ...]
    dev: tuple[Path, ...]


def find_sources(named: str) -> list[Source]:
    """Return the datasets that --dataset_name_or_path names.

        ./data                       a folder with train.json and dev.json (.jsonl, .csv, .parquet), or train/ and dev/
        ./data/train.json            one file, to train on; sft-eval.jsonl beside sft-train.jsonl is evaluated on
        ./dataset                    a data set of a hub: data/train-00000-of-00002.parquet, default/train/0000.parquet;
                                     validation, else test, is evaluated on
        0.7 ./data/a 0.3 ./data/b    weights and these in turn, spaces or commas between; any sum of weights

    Raises:
        DataError: Names the path and what was looked for, and where two files are for one split.
    """
    return [_source(weight, Path(path)) for weight, path in weighted_paths("dataset_name_or_path", named)]


def _source(weight: float | None, path: Path) -> Source:
    if path.is_file():
        # The file to evaluate on lies beside one to train on: sft-eval.jsonl of sft-train.jsonl.
        names = (TRAIN.sub(name, path.name) for name in SPLITS["dev"])
        beside = [file for name in names if name != path.name and (file := path.with_name(name)).is_file()]
        return Source(weight, (path,), tuple(beside[:1]))
    if not path.is_dir():
        raise DataError(f"no data at {path}: no such folder or file.")
    folder = _folder_of(path)
    train, dev = (next(filter(None, (_files(folder, name) for name in names)), ()) for names in SPLITS.values())
    if not train and not dev:
        there = sorted(file.name for file in path.iterdir())[:5]
        raise DataError(
            f"no data in {path}: looked for train.json and dev.json (or .jsonl, .csv, .parquet), for folders train and "
            "dev with such files, and for parts of a hub such as data/train-00000-of-00001.parquet; found "
            f'{", ".join(there) or "nothing"}. `make data-sft ARGS="--input FILES --output FOLDER"` makes both of '
            "other files."
        )
    return Source(weight, train, dev)


def input_files(inputs: Iterable[str]) -> list[str]:
    """Return the files of a command's inputs; a folder gives its training files, and a line names the others.

    Raises:
        DataError: As find_sources.
    """
    files = []
    for named in inputs:
        if not Path(named).is_dir():
            files.append(named)
            continue
        train = _source(None, Path(named)).train
        files += map(str, train)
        if others := [file for file in visible_files(named) if file not in train]:
            say_left_out(named, others, f"not for training (known are {', '.join(SUFFIXES)})")
    return files


def _folder_of(path: Path) -> Path:
    """Return the folder of a data set that holds the splits: itself, data/, or its only configuration.

    Raises DataError where there are several configurations.
    """
    folders = [path, path / "data", *sorted(folder for folder in path.glob("*") if folder.is_dir())]
    holding = [folder for folder in folders if any(_files(folder, name) for names in SPLITS.values() for name in names)]
    if len(holding) > 1 and holding[0] not in (path, path / "data"):
        names = ", ".join(folder.name for folder in holding)
        raise DataError(f"{path} has several configurations: {names}. Name the folder of one, such as {holding[0]}.")
    return holding[0] if holding else path


def _files(folder: Path, split: str) -> tuple[Path, ...]:
    named = files_named(folder, split)
    if len(named) > 1:  # one may well be made of the other
        raise DataError(
            f"{folder}: found {' and '.join(file.name for file in named)}, allowed: one of them. Move the others away, "
            f"or all into a folder {split}, whose files are read together."
        )
    return named or files_inside(folder, split) or _parts(folder, split)


def _parts(folder: Path, split: str) -> tuple[Path, ...]:
    """Return train-00000-of-00002.parquet and the others in order. Raises DataError where some are missing."""
    files = sorted(file for file in folder.glob(f"{split}-*-of-*") if file.name.endswith(SUFFIXES))
    found = [match for file in files if (match := PART.search(file.name))]
    missing = {int(number) for match in found for number in range(int(match[2]))} - {int(match[1]) for match in found}
    if missing:
        first, digits = min(missing), len(found[0][1])
        name = files[0].name.replace(found[0][0], f"{first:0{digits}}-of-{found[0][2]}")
        raise DataError(f"{folder}: {name} is missing, {plural(len(missing), 'part')} in all. Download the data again.")
    return tuple(files)


def files_named(folder: Path, split: str) -> tuple[Path, ...]:
    """Return the existing files of a folder among train.json, train.jsonl, train.csv and train.parquet."""
    return tuple(file for suffix in SUFFIXES if (file := folder / f"{split}{suffix}").is_file())


def files_inside(folder: Path, split: str) -> tuple[Path, ...]:
    """Return the data files of the folder `train`, which is read where no file has that name.

    Hidden files are left out.
    """
    files = sorted(file for file in (folder / split).glob("[!.]*") if file.is_file())
    return tuple(file for file in files if file.name.endswith(SUFFIXES))


@dataclass(frozen=True)
class Columns:
    """Keys of question and answer, None where the first rows of each file tell."""

    prompt: str | None = None
    response: str | None = None

    def read(self, file: Path) -> Rows[Dialogue]:
        """Return all rows of a file, in the columns named."""
        return read_rows(file, self.prompt, self.response)


class Reader(Protocol[Entry]):
    """A reader of one kind of rows, such as dialogues in named columns."""

    def read(self, file: Path) -> Rows[Entry]:
        """Return all rows of a file."""
        ...


@dataclass(frozen=True)
class Survey(Generic[Entry]):
    """The rows found in the files.

    Attributes:
        train, dev: By source, then by file.
        allowed: The largest number of broken rows.
    """

    sources: list[Source]
    train: list[list[Rows[Entry]]]
    dev: list[list[Rows[Entry]]]
    allowed: int

    @property
    def files(self) -> list[Rows[Entry]]:
        """All files to train and evaluate on."""
        return [rows for source in [*self.train, *self.dev] for rows in source]

    @property
    def faults(self) -> list[Fault]:
        """All broken rows."""
        return [fault for rows in self.files for fault in rows.faults]


def survey(named: str, wanted: tuple[str, ...], columns: Reader[Entry], max_broken_rows: int) -> Survey[Entry]:
    """Read every row of the files that --dataset_name_or_path names.

    wanted: "train", "dev" or both.

    Raises:
        DataError: If files are missing, of no known schema, hold more broken rows than allowed, or a source has no
            file to train on; or none has one to evaluate on.
    """
    sources = find_sources(named)
    if "train" in wanted:
        for source in sources:
            if not source.train:
                raise DataError(f"{source.dev[0].parent} has data to evaluate on, but none to train on: train.json.")
    if "dev" in wanted and not any(source.dev for source in sources):
        raise DataError(
            f"no data to evaluate on in {named}: expected dev.json beside train.json. Add it, or --do_eval 0."
        )
    found = Survey(
        sources,
        [_read(source.train, columns) for source in sources] if "train" in wanted else [],
        [_read(source.dev, columns) for source in sources] if "dev" in wanted else [],
        max_broken_rows,
    )
    check_faults(found.faults, max_broken_rows)
    return found


def _read(files: tuple[Path, ...], columns: Reader[Entry]) -> list[Rows[Entry]]:
    return [columns.read(file) for file in files]


Dialogues = DialogueDataset | PackedDialogues | BlendedDialogues


@dataclass(frozen=True)
class Datasets:
    """The samples of a run, None for a split that was not requested; lines: reports about them, to be printed."""

    train: Dialogues | None
    dev: DialogueDataset | None
    lines: list[str]


def encode_survey(found: Survey, encoding_of: Callable[[bool], Encoding], row_tokens: int | None = None) -> Datasets:
    """Encode all dialogues; sources with weights are blended.

    A row that the chat template cannot render is a broken row.

    Args:
        encoding_of: Maps whether a schema is one of chats to the encoding of its dialogues.
        row_tokens: Pack training dialogues into rows of this many tokens, each source for itself; None: a dialogue
            is a sample.
        found: The rows.

    Raises:
        DataError: If there are more broken rows than allowed.
    """
    train = dev = None
    lines = []
    of_train, of_dev = [], []
    parts = [_encoded([source], encoding_of, of_train) for source in found.train]
    evaluated = _encoded(found.dev, encoding_of, of_dev)
    faults = [*found.faults, *of_train, *of_dev]
    check_faults(faults, found.allowed)
    if found.train:
        train = _blended(found, parts, row_tokens)
        lines.append(_line("training data", train, found.train, len(of_train)))
        if row_tokens:
            full = train.tokens.sum() / (train.tokens.size * row_tokens)
            lines.append(f"packed: {train.tokens.size:,} rows of up to {row_tokens:,} tokens, {full:.0%} full")
    if found.dev:
        dev = evaluated
        files = [file for source in found.sources for file in source.dev]
        names = {name for file in files for name in (file.parent.name, re.split(r"[-.]", file.name)[0])}
        other = next((name for name in SPLITS["dev"][1:] if name in names), "")
        lines.append(_line(f"evaluation data ({other})" if other else "evaluation data", dev, found.dev, len(of_dev)))
    return Datasets(train, dev, [*lines, *left_out_lines(found, faults)])


def left_out_lines(found: Survey, faults: list[Fault]) -> list[str]:
    """Return the lines that report unused keys and broken rows."""
    lines = [unused] if (unused := unused_line(found.files)) else []
    return [*lines, f"broken rows left out: {len(faults)}, the first {faults[0]}"] if faults else lines


def encode_rows(rows: Rows, encoding: Encoding) -> tuple[list[Encoded], list[Fault]]:
    """Return the samples of a file, and its rows that the chat template cannot render.

    Raises:
        DataError: If the template renders none of the first rows, or the lengths leave no room for an answer.
    """
    check_lengths(encoding.src_length, encoding.max_length)
    samples, faults = [], []
    first = min(FIRST_ROWS, len(rows.entries))
    for number, (line, found) in enumerate(zip(rows.lines, encode_dialogues(rows.entries, encoding), strict=True), 1):
        if not isinstance(found, DataError):
            samples += found
            continue
        faults.append(Fault(rows.file, line, str(found).rstrip(".")))
        if len(faults) == number == first:
            raise DataError(f"{rows.file}: none of the first rows can be rendered. Line {rows.lines[0]}: {found}")
    return samples, faults


def _encoded(
    sources: list[list[Rows]], encoding_of: Callable[[bool], Encoding], faults: list[Fault]
) -> DialogueDataset:
    """Encode the rows of several sources. faults: receives the rows that cannot be rendered."""
    encodings = {chat: encoding_of(chat) for chat in {rows.schema.chat for source in sources for rows in source}}
    samples = []
    for rows in (rows for source in sources for rows in source):
        of_file, broken = encode_rows(rows, encodings[rows.schema.chat])
        samples += of_file
        faults += broken
    return DialogueDataset(samples)


def _blended(found: Survey, parts: list[DialogueDataset], row_tokens: int | None) -> Dialogues:
    shown = [PackedDialogues(part, row_tokens) for part in parts] if row_tokens else parts
    if len(shown) == 1:
        return shown[0]
    return BlendedDialogues(shown, [source.weight for source in found.sources if source.weight is not None])


def _line(name: str, dataset: Dialogues, sources: list[list[Rows]], left_out: int) -> str:
    rows = [dataset for source in sources for dataset in source]
    schemas = ", ".join(dict.fromkeys(dataset.schema.name for dataset in rows))
    dialogues = sum(len(dataset.entries) for dataset in rows) - left_out
    samples = f" as {len(dataset):,} samples" if len(dataset) > dialogues else ""
    return (
        f"{name}: {plural(dialogues, 'dialogue')} ({schemas}){samples}, {dataset.tokens.sum():,} tokens, "
        f"{dataset.counted.sum():,} of answers, {dataset.cuts}"
    )

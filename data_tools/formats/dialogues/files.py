"""From --dataset_name_or_path to files: which to train on, with which weight, and which to evaluate on."""

from dataclasses import dataclass
from pathlib import Path

from data_tools.formats.errors import DataError
from data_tools.formats.weights import weighted_paths

SUFFIXES = (".json", ".jsonl")


@dataclass(frozen=True)
class Source:
    """One dataset. weight: None where each sample is used once; train, dev: its files, dev perhaps without any."""

    weight: float | None
    train: tuple[Path, ...]
    dev: tuple[Path, ...]


def find_sources(named: str) -> list[Source]:
    """The datasets that --dataset_name_or_path names.

        ./data                       a folder with train.json and dev.json (or .jsonl), or folders train/ and dev/
        ./data/train.json            one file, to train on
        0.7 ./data/a 0.3 ./data/b    weights and these in turn, spaces or commas between; any sum of weights

    Raises DataError that names the path and what was looked for.
    """
    return [_source(weight, Path(path)) for weight, path in weighted_paths("dataset_name_or_path", named)]


def _source(weight: float | None, path: Path) -> Source:
    if path.is_file():
        return Source(weight, (path,), ())
    if not path.is_dir():
        raise DataError(f"no data at {path}: no such folder or file.")
    train, dev = (_files(path, split) for split in ("train", "dev"))
    if not train and not dev:
        raise DataError(
            f"no data in {path}: looked for train.json and dev.json (or .jsonl), and for folders train and dev "
            "with such files."
        )
    return Source(weight, train, dev)


def _files(folder: Path, split: str) -> tuple[Path, ...]:
    files = [folder / f"{split}{suffix}" for suffix in SUFFIXES]
    if not any(file.is_file() for file in files):
        files = sorted(file for file in (folder / split).glob("*") if file.suffix in SUFFIXES)
    return tuple(file for file in files if file.is_file())

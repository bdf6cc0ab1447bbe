"""From --input_dir to the datasets of training: one corpus, a folder of them, or a weighted blend."""

import re
from pathlib import Path
from shlex import quote

from data_tools.formats.blended import BlendedDataset, weighted_paths
from data_tools.formats.errors import DataError
from data_tools.formats.tokens.indexed import IndexedDataset
from data_tools.formats.tokens.samples import SampleDataset, Split, split_boundaries
from data_tools.formats.tokens.summary import check_vocabulary

SPLITS = ("train", "valid", "test")


def find_corpora(input_dir: str | Path) -> list[tuple[float | None, str]]:
    """Return (weight, prefix) of each corpus that `input_dir` names.

        ./data                      a folder: each pair X.bin, X.idx in it; weight None: each sample once
        ./data/corpus               one prefix (also ./data/corpus.bin); weight None
        0.7 ./data/a 0.3 ./data/b   weights and prefixes, spaces or commas between; any sum of weights

    Raises:
        DataError: Names the path, what was looked for and the command that makes data.
    """
    corpora = weighted_paths("input_dir", str(input_dir))
    if len(corpora) == 1:
        [(_, path)] = corpora
        return [(None, prefix) for prefix in _prefixes(path)]
    return [(weight, _one_prefix(path)) for weight, path in corpora]


def open_splits(
    input_dir: str | Path,
    split: str,
    sequence_length: int,
    seed: int,
    cache_dir: str | Path,
    vocab_size: int | None = None,
    wanted: tuple[str, ...] = SPLITS,
) -> tuple:
    """Return the (train, valid, test) datasets of samples; None in place of a split that is not `wanted`.

    split: shares by documents within each corpus, such as "949,50,1". With `vocab_size`, every token id of every corpus
    is checked against it, which reads each .bin without a summary once.

    Raises:
        DataError: If data are missing, damaged, hold an id beyond the vocabulary, or a wanted split is empty.
    """
    weights, prefixes = zip(*find_corpora(input_dir), strict=True)
    corpora = [IndexedDataset(prefix) for prefix in prefixes]
    if vocab_size is not None:
        for corpus in corpora:
            check_vocabulary(corpus, vocab_size)

    boundaries = [split_boundaries(split, len(corpus)) for corpus in corpora]
    weighted = weights[0] is not None

    def open_split(number: int):
        parts = _parts(corpora, number, boundaries, weighted, sequence_length)
        datasets = [SampleDataset(part, sequence_length, seed, cache_dir) for part in parts]
        return datasets[0] if len(datasets) == 1 else BlendedDataset(datasets, weights if weighted else None)

    return tuple(open_split(number) if name in wanted else None for number, name in enumerate(SPLITS))


def training_identities(input_dir: str | Path, split: str, sequence_length: int, seed: int) -> list[dict]:
    """Return what the samples of the train split depend on, corpus by corpus (Split.identity).

    No sample index is built.

    Raises:
        DataError: If data are missing or damaged.
    """
    weights, prefixes = zip(*find_corpora(input_dir), strict=True)
    corpora = [IndexedDataset(prefix) for prefix in prefixes]
    boundaries = [split_boundaries(split, len(corpus)) for corpus in corpora]
    parts = _parts(corpora, SPLITS.index("train"), boundaries, weights[0] is not None, sequence_length)
    return [part.identity(sequence_length, seed) for part in parts]


def _parts(
    corpora: list[IndexedDataset], number: int, boundaries: list[list[int]], weighted: bool, sequence_length: int
) -> list[Split]:
    """Split number `number` of each corpus."""
    parts = [
        Split(corpus, SPLITS[number], *limits[number : number + 2])
        for corpus, limits in zip(corpora, boundaries, strict=True)
    ]
    if weighted:
        return parts
    # "all there is" may be nothing in some corpora; in all of them it is an error
    return [part for part in parts if part.count_samples(sequence_length)] or parts


def _prefixes(path: str) -> list[str]:
    """Return the corpora that one path names: all pairs of a folder, or the one with this prefix."""
    if not Path(path).is_dir():
        prefix = re.sub(r"\.(bin|idx)$", "", path)
        if not (Path(f"{prefix}.idx").exists() or Path(f"{prefix}.bin").exists()):
            raise DataError(
                f"no data at {path}: looked for a folder of that name with pairs X.bin, X.idx, and for "
                f"{prefix}.bin, {prefix}.idx. {_how_to_make(path)}"
            )
        return [prefix]
    prefixes = sorted({str(file.with_suffix("")) for file in Path(path).iterdir() if file.suffix in (".bin", ".idx")})
    if not prefixes:
        raise DataError(f"no data in {path}: looked for pairs X.bin and X.idx. {_how_to_make(path)}")
    return prefixes


def _one_prefix(path: str) -> str:
    prefixes = _prefixes(path)
    if len(prefixes) > 1:
        raise DataError(
            f"{path} has {len(prefixes)} corpora, and one weight: give each its own, such as 0.5 {prefixes[0]}."
        )
    return prefixes[0]


def _how_to_make(folder: str) -> str:
    prefix = quote(f"{folder}/corpus")
    command = ".venv/bin/python -m data_tools.tokenize --input FILES --tokenizer DIR --output"
    return f"Make them from text: {command} {prefix}"

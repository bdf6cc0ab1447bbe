"""From the data flags to the datasets of training and evaluation."""

import os
from dataclasses import dataclass
from pathlib import Path

from data_tools.formats.tokens.blend import find_corpora, open_splits
from launch.training.ranks import first_on_rank_zero, rank


@dataclass(frozen=True)
class Splits:
    """Datasets of {"input_ids", "labels"}, int64 [sequence_length]; None where the run does not need one."""

    train: object
    valid: object


def open_data(data_args, training_args, vocab_size: int) -> Splits:
    """Open the corpora and build (or find cached) their sample indices, on rank 0 first.

    Rank 0 also reads every token id once, to check it against the vocabulary.
    Raises UserError when files are missing, damaged or hold ids beyond the vocabulary, or a split is empty.
    """
    needed = {"train": training_args.do_train, "valid": training_args.do_eval}
    train, valid, _ = first_on_rank_zero(
        lambda: open_splits(
            " ".join(data_args.input_dir),
            data_args.split,
            data_args.max_seq_length,
            training_args.seed,
            cache_directory(data_args, training_args.output_dir),
            vocab_size if rank() == 0 else None,
            wanted=tuple(name for name, wanted in needed.items() if wanted),
        )
    )
    if valid is not None and 0 < data_args.max_eval_samples < len(valid):
        valid = Head(valid, data_args.max_eval_samples)
    return Splits(train, valid)


def cache_directory(data_args, output_dir: str) -> Path:
    """Where sample indices are kept: --data_cache, or index_cache beside the first corpus or, if that is
    read-only, in the output directory."""
    if data_args.data_cache:
        return Path(data_args.data_cache)
    _, prefix = find_corpora(" ".join(data_args.input_dir))[0]
    folder = Path(prefix).absolute().parent
    return (folder if os.access(folder, os.W_OK) else Path(output_dir)) / "index_cache"


class Head:
    """The first samples of a dataset."""

    def __init__(self, dataset, samples: int):
        self.dataset = dataset
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> dict:
        return self.dataset[index]

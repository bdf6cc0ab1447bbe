"""The output directory: nothing of an earlier run is lost."""

import os
from pathlib import Path

from launch.reporting.records import TRAIN_LOG
from launch.training.ranks import first_on_rank_zero, rank


def open_output(training_args) -> None:
    """Make the output directory on rank 0; the log of a run that is not continued is kept under another name.

    That it can be written, and that an earlier run in it may be overwritten, preflight has checked.
    """
    first_on_rank_zero(lambda: _open(training_args) if rank() == 0 else None)


def _open(training_args) -> None:
    directory = Path(training_args.output_dir)
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / TRAIN_LOG
    if training_args.do_train and log.exists() and not training_args.resume_from_checkpoint:
        os.replace(log, _next_free_name(log))


def _next_free_name(path: Path) -> Path:
    """train_log.1.jsonl for train_log.jsonl, or the first number that is free."""
    number = 1
    while path.with_suffix(f".{number}{path.suffix}").exists():
        number += 1
    return path.with_suffix(f".{number}{path.suffix}")

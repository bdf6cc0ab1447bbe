"""The output directory: nothing of an earlier run is lost, and the run's summary ends up in it."""

import os
from pathlib import Path

from launch.errors import UserError
from launch.reporting.records import TRAIN_LOG
from launch.training.ranks import first_on_rank_zero, rank


def open_output(training_args) -> None:
    """Make the output directory ready on rank 0.

    A directory that holds an earlier run is refused unless --resume_from_checkpoint continues it or
    --overwrite_output_dir 1 starts anew; then the earlier run's log is kept under another name.
    Raises UserError, also where the directory cannot be written.
    """
    first_on_rank_zero(lambda: _open(training_args) if rank() == 0 else None)


def _open(training_args) -> None:
    directory = Path(training_args.output_dir)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--output_dir: cannot make {directory}: {error.strerror}. Choose another directory.") from None
    if not os.access(directory, os.W_OK):
        raise UserError(f"--output_dir: {directory} is not writable. Choose another directory.")
    log = directory / TRAIN_LOG
    if not training_args.do_train or not log.exists() or training_args.resume_from_checkpoint:
        return
    if not training_args.overwrite_output_dir:
        raise UserError(
            f"--output_dir: {directory} holds an earlier run ({TRAIN_LOG}). Choose another directory, continue it with "
            "--resume_from_checkpoint CHECKPOINT, or start anew with --overwrite_output_dir 1 (its log is kept)."
        )
    os.replace(log, _next_free_name(log))


def _next_free_name(path: Path) -> Path:
    """train_log.1.jsonl for train_log.jsonl, or the first number that is free."""
    number = 1
    while path.with_suffix(f".{number}{path.suffix}").exists():
        number += 1
    return path.with_suffix(f".{number}{path.suffix}")

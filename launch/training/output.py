"""The output directory: held by one run at a time, nothing of an earlier run is lost."""

import json
import os
from pathlib import Path

from data_tools.formats.atomic import written_aside
from launch.checkpoint.state.lock import LOCK, lock_output
from launch.checkpoint.state.manifest import checkpoints, read_manifest
from launch.checkpoint.state.verify import is_foreign, remove_partial
from launch.errors import UserError
from launch.reporting.records import TRAIN_LOG
from launch.training.ranks import first_on_rank_zero, gather, rank
from launch.training.saving.choose import choose_checkpoint


def open_output(training_args) -> Path | None:
    """Make the output directory and hold it; the checkpoint to continue from. Called by all ranks together.

    What an earlier run left is kept under other names: its log and, where the run starts anew, its checkpoints. That
    the directory can be written, and that an earlier run in it may be overwritten, preflight has checked.
    """
    output = Path(training_args.output_dir)
    first_on_rank_zero(lambda: _hold(output) if rank() == 0 else None)
    there = gather((output / LOCK).exists())
    if not all(there):
        raise UserError(
            f"--output_dir: rank {there.index(False)} does not see what rank 0 writes to {output}: it must be on a "
            "file system that all nodes share."
        )
    checkpoint = choose_checkpoint(training_args)
    if training_args.do_train:
        first_on_rank_zero(lambda: _keep_earlier(output, checkpoint) if rank() == 0 else None)
    return checkpoint


def _hold(output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    lock_output(output)
    remove_partial(output)


def _keep_earlier(output: Path, checkpoint: Path | None) -> None:
    """The log goes on from the checkpoint's step; what is beyond it, and all of it in a new run, gets another name."""
    step = 0 if checkpoint is None or is_foreign(checkpoint) else read_manifest(checkpoint).global_step
    log = output / TRAIN_LOG
    if log.exists():
        lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if _step_of(line) <= step] if step else []
        if len(kept) < len(lines):
            os.replace(log, _next_free_name(log))
            if kept:
                with written_aside(log) as file:
                    file.write("".join(kept).encode())
    if checkpoint is None:
        earlier = checkpoints(output)
        if earlier:
            folder = output / "earlier"
            folder = _next_free_name(folder) if folder.exists() else folder
            folder.mkdir()
            for one in earlier:
                os.rename(one, folder / one.name)


def _step_of(line: str) -> float:
    """Of a record; one that a kill cut off is beyond all steps."""
    try:
        return json.loads(line)["global_step"]
    except (ValueError, KeyError):
        return float("inf")


def _next_free_name(path: Path) -> Path:
    """train_log.1.jsonl for train_log.jsonl, or the first number that is free."""
    number = 1
    while path.with_suffix(f".{number}{path.suffix}").exists():
        number += 1
    return path.with_suffix(f".{number}{path.suffix}")

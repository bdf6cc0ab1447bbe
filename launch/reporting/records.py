"""What a run has written: read, continued, cut back to where a run goes on. No Paddle here.

train_log.jsonl has one record a line, and one a step and kind (training, evaluation). run_summary.json says what was
run, on what, and how it ended.
"""

import errno
import importlib.metadata
import json
import math
import os
import platform
import subprocess
import sys
from enum import Enum
from pathlib import Path

from data_tools.formats.atomic import written_aside
from launch.errors import UserError

TRAIN_LOG = "train_log.jsonl"
RUN_SUMMARY = "run_summary.json"


def read_train_log(output_dir: Path | str) -> list[dict]:
    """Return the records of a run, oldest first.

    Damaged lines are left out: a kill cut them, or a disk changed them.
    """
    return [record for _, record in _records(Path(output_dir) / TRAIN_LOG) if record]


def past_records(output_dir: Path | str, step: int) -> list[dict]:
    """Return the training records up to a step, oldest first; of a step that was done twice, the later one."""
    if not (Path(output_dir) / TRAIN_LOG).exists():
        return []
    records = {record["global_step"]: record for record in read_train_log(output_dir) if "loss" in record}
    return [records[logged] for logged in sorted(records) if logged <= step]


def past_losses(output_dir: Path | str, step: int, count: int) -> list[float]:
    """Return the last losses that were logged up to a step, oldest first."""
    return [record["loss"] for record in past_records(output_dir, step)][-count:]


def read_summary(output_dir: Path | str) -> dict:
    """Return the summary. NaN and infinity, which other writers may have left, become None, as in write_summary."""
    path = Path(output_dir) / RUN_SUMMARY
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "no file, but a folder, a pipe or a device", str(path))
    text = path.read_text(encoding="utf-8")
    return json.loads(text, parse_constant=lambda name: None)


def arguments_of(summary: dict) -> dict:
    """Return the arguments in a summary, of all its groups together."""
    return {name: value for group in summary["arguments"].values() for name, value in group.items()}


class LogWriter:
    """Appends records to the log of a run.

    Attributes:
        continues: The run so far is in it, and what it has is not written again: a run that was killed after its
            last step, or is started again at its end, repeats the last evaluation, and one that ends with its best
            weights repeats theirs.
    """

    def __init__(self, output_dir: Path | str, continues: bool):
        self.path = Path(output_dir) / TRAIN_LOG
        self.continues = continues
        self.written: set[tuple[int, bool]] = set()
        if continues and self.path.exists():
            self.written = {_step_and_kind(record) for record in read_train_log(output_dir)}

    def write(self, record: dict) -> None:
        """Write a record.

        Raises:
            UserError: If the file cannot be written.
        """
        if self.continues and _step_and_kind(record) in self.written:
            return
        self.written.add(_step_and_kind(record))
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except FileNotFoundError:
            raise UserError(f"{self.path.parent}: removed in training, with its checkpoints.") from None
        except OSError as error:
            mend = how_to_mend(str(error))
            raise UserError(f"{error}. The checkpoints are as they were. {mend} and start again.") from None


def how_to_mend(failure: str) -> str:
    """Return what to do where a file of the output could not be written.

    Args:
        failure: The system's message.
    """
    closed = (os.strerror(code) for code in (errno.EROFS, errno.EACCES, errno.EPERM))
    return "Make the output directory writable" if any(word in failure for word in closed) else "Free the disk"


def cut_log(output_dir: Path | str, step: int) -> None:
    """Take the records behind a step out of the log; all that was in it is kept under the next free name.

    A kill at any moment leaves the log as it was or as it is to be.
    """
    log = Path(output_dir) / TRAIN_LOG
    if not log.exists():
        return
    lines = _records(log)
    kept = [line for line, record in lines if step and record and record["global_step"] <= step]
    if len(kept) == len(lines):
        return
    if not kept:
        os.replace(log, next_free_name(log))
        return
    with written_aside(next_free_name(log)) as file:
        file.write(log.read_bytes())
    with written_aside(log) as file:
        file.writelines(kept)


def next_free_name(path: Path) -> Path:
    """Return train_log.1.jsonl for train_log.jsonl, or the first number that is free."""
    number = 1
    while path.with_suffix(f".{number}{path.suffix}").exists():
        number += 1
    return path.with_suffix(f".{number}{path.suffix}")


def _records(log: Path) -> list[tuple[bytes, dict | None]]:
    """Yield (line, its record) of a log.

    None for a line without its end, or one that is no object with a step's number.
    """
    with open(log, "rb") as file:
        return [(line, _record(line)) for line in file]


def _record(line: bytes) -> dict | None:
    try:
        record = json.loads(line.decode("utf-8")) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or type(record.get("global_step")) is not int:
        return None
    return record if isinstance(record.get("loss", 0.0), (int, float)) else None


def _step_and_kind(record: dict) -> tuple[int, bool]:
    return record["global_step"], "loss" in record


REPORTED_PACKAGES = ["paddlepaddle", "paddlepaddle-gpu", "paddlenlp", "visualdl", "numpy", "sentencepiece"]


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that decide the result."""
    versions = {"python": platform.python_version()}
    for name in REPORTED_PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def git_revision() -> str | None:
    """Return the commit of this repository with "-dirty" when files differ from it; None outside a checkout."""
    root = Path(__file__).resolve().parent.parent
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def topology(training_args) -> dict[str, int]:
    """Return the number of processes and the parallel degrees of the run."""
    ranks = getattr(training_args, "sequence_ranks", 1)
    return ({"sep_parallel_degree": ranks} if ranks > 1 else {}) | {
        "processes": max(training_args.world_size, 1),
        "data_parallel_degree": max(training_args.data_parallel_degree, 1),
        "sharding_parallel_degree": max(training_args.sharding_parallel_degree, 1),
        "tensor_parallel_degree": max(training_args.tensor_parallel_degree, 1),
        "pipeline_parallel_degree": max(training_args.pipeline_parallel_degree, 1),
    }


def write_summary(output_dir: str, summary: dict) -> None:
    """Write run_summary.json aside and rename it: it is whole or not there."""
    path = Path(output_dir) / RUN_SUMMARY
    temporary = path.with_suffix(f".tmp-{os.getpid()}")
    temporary.write_text(json.dumps(_without_infinities(summary), indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def _without_infinities(value):
    """Return the value with null for NaN and infinity, which JSON lacks."""
    if isinstance(value, dict):
        return {key: _without_infinities(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_infinities(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def plain(values: dict) -> dict:
    """Return the argument values that JSON can hold."""
    simple = (str, int, float, bool, type(None))
    return {
        key: value if isinstance(value, simple) else str(value.value if isinstance(value, Enum) else value)
        for key, value in sorted(values.items())
        if not key.startswith("_")
    }


def command_line() -> list[str]:
    """Return the command of this process."""
    return [sys.executable, *sys.argv]

"""What a run's own files say, for the page: records behind a place of its log, its progress, its last summary."""

import json
import math
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from data_tools.formats.benchmarks.files import PLACE, read_benchmark
from data_tools.formats.errors import DataError
from launch.errors import UserError
from launch.evaluation.comparison import read_results
from launch.reporting.records import TRAIN_LOG, arguments_of, read_summary

LAST_BYTES = 1 << 14  # of a train_log.jsonl, for its last records
MOST_ANSWERS = 20  # of an evaluation that are shown
LARGEST_PART = 4 << 20  # bytes of a log that are read at once
SHOWN = ("global_step", "loss", "eval_loss", "eval_tokens", "grad_norm", "learning_rate", "tokens_per_second")
SHOWN += ("peak_memory_bytes",)
SHOWN += ("reward", "eval_reward", "answer_tokens", "silent_groups", "entropy", "largest_log_ratio", "kl", "reverse_kl")
REWARDS = ("reward_",)  # beginnings of names: a reward of several kinds, each by itself


def records_of(folder: Path, offset: int, identity: str) -> dict:
    """Return {"records": the log's behind `offset` bytes, "offset": where they end, "identity": of the log}.

    identity: as answered with the offset. A log that is another one, or has become shorter, because its run went
    back to a checkpoint or began again, is read from its beginning: "anew" says so.
    """
    path = folder / TRAIN_LOG
    if not path.is_file():
        return {"records": [], "offset": 0, "identity": "", "anew": offset > 0}
    with open(path, "rb") as file:
        # A file system may give a log and the one that a new run writes in its place the same number; a run that goes
        # back to a checkpoint writes the same first line to another file.
        found = f"{os.fstat(file.fileno()).st_ino}-{zlib.crc32(file.readline(LARGEST_PART)):08x}"
        size = file.seek(0, os.SEEK_END)
        anew = offset > 0 and (size < offset or identity != found)
        begin = file.seek(0 if anew else offset)
        text = file.read(LARGEST_PART)
    whole = text[: text.rfind(b"\n") + 1]
    return {
        "records": list(_records(whole, SHOWN, REWARDS)),
        "offset": begin + len(whole),
        "identity": found,
        "anew": anew,
    }


def progress_of(folder: Path, since: float) -> dict:
    """Return a run's step, of how many, its losses, the seconds that are left and the memory that it has taken.

    {} before its first record.

    since: when the run that goes on was started, in seconds: an older log is that of the run before.
    """
    log = folder / TRAIN_LOG
    if not log.is_file() or log.stat().st_mtime < since:
        return {}
    with open(log, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LAST_BYTES))
        names = ("global_step", "loss", "eval_loss", "progress", "eta_seconds", "peak_memory_bytes")
        records = list(_records(file.read(), names))
    held_out = [record["eval_loss"] for record in records if record.get("eval_loss") is not None]
    records = [record for record in records if record.get("loss") is not None]
    if not records or not records[-1].get("global_step"):
        return {}
    last = records[-1]
    share = last.get("progress")
    steps = round(last["global_step"] / share) if share else None
    return {
        "step": last["global_step"],
        "steps": steps,
        "loss": last["loss"],
        "eval_loss": held_out[-1] if held_out else None,
        "eta_seconds": last.get("eta_seconds"),
        "peak_memory_bytes": last.get("peak_memory_bytes"),  # of this process, since it has started
    }


def summary_of(folder: Path) -> dict:
    """Return the part of run_summary.json that the page shows; {} without one, or where it is damaged."""
    try:
        whole = read_summary(folder)
        script = whole.get("command", ["", "", ""])[1:3]  # launch/recipe.py is followed by the recipe
        return {
            "first_step_memory": whole.get("first_step_memory"),
            "arguments": arguments_of(whole),
            "script": str(script[str(script[0]).endswith("/recipe.py")]),
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}


def evaluation_of(path: Path, base_results: str) -> dict:
    """Return the results of an evaluation beside those of the base, where there are some.

    Args:
        path: Of its file.
        base_results: Ends the name of the base's file.

    Returns:
        "rows": their number. "measures": each with name, base (None without one) and result, 0 to 1. "answers": of the
        first rows, each with asked, reference, base and result.

    Raises:
        UserError: If a file is no evaluation of questions.
    """
    beside = path.with_stem(path.stem + base_results)
    try:
        result = read_results(path)
        base = read_results(beside) if beside.is_file() else None
        [(task, samples), *_] = result["samples"].items()
        others = {one["digest"]: one["resps"][0][0] for one in base["samples"][task]} if base else {}
        names = samples[0]["metrics"]
        found = [report and report["results"][task] for report in (base, result)]
        first = samples[:MOST_ANSWERS]
        docs = _questions(task, {Path(one["place"].rpartition(":")[0]) for one in first}, path.stat().st_mtime)
        return {
            "rows": len(samples),
            "measures": [
                {
                    "name": name,
                    **{of: by and by[f"{name},none"] for of, by in zip(("base", "result"), found, strict=True)},
                }
                for name in names
            ],
            "answers": [
                docs.get(one["place"], {"asked": one["place"], "reference": ""})
                | {"base": others.get(one["digest"]), "result": one["resps"][0][0]}
                for one in first
            ],
        }
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise UserError(f"{path}: no results of questions that the model answers ({error!r}). Evaluate anew.") from None


def _questions(form: str, files: set[Path], evaluated: float) -> dict[str, dict]:
    """Return questions and right answers by their places; {} of files that are gone, or written after `evaluated`."""
    try:
        if max(file.stat().st_mtime for file in files) > evaluated:
            return {}
        rows = read_benchmark(sorted(files), form)
        return {row[PLACE]: {"asked": row["question"], "reference": row["answers"][0]} for row in rows}
    except (DataError, OSError, LookupError, TypeError):
        return {}


def _records(text: bytes, names: Iterable[str], beginnings: tuple[str, ...] = ()) -> Iterator[dict]:
    """Yield the drawn part of each record; damaged lines are left out, as launch/reporting/records.py does."""
    for line in text.splitlines():
        try:
            record = json.loads(line)
            wanted = (*names, *(name for name in record if name.startswith(beginnings)))
            values = {name: record[name] for name in wanted if name in record}  # JSON lacks NaN and infinity
            yield {name: value if math.isfinite(value) else None for name, value in values.items()}
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            continue

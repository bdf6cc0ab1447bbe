"""Results of evaluations: collected so that nothing is computed twice, written, shown, and compared. No Paddle."""

import json
import math
from collections.abc import Iterable
from io import FileIO
from pathlib import Path

import numpy as np

from data_tools.formats.atomic import open_alone, write_all, written_aside
from data_tools.formats.errors import DataError
from data_tools.formats.json_files import read_object, shown
from launch.errors import UserError
from launch.evaluation.tasks import Outcome, Task, measures, subjects
from launch.evaluation.written_scores import BLEU, MEANS, corpus_bleu

RESAMPLES = 10_000
CONFIDENCE = 0.95
FEWEST = 30  # items from which resamples say anything
OF_ITEMS = ("acc", "acc_norm", *MEANS)  # measures that are means of a value of each item
LONGEST_SETTING = 200  # characters: of a path
# Of what was evaluated and how, what a comparison shows.
SETTINGS = (
    *("model", "adapter", "dtype", "weight_quantize_algo"),
    *("apply_chat_template", "num_fewshot", "split", "limit", "max_new_tokens"),
)
HIGHER_IS_BETTER = {**dict.fromkeys((*OF_ITEMS, BLEU), True), "bits_per_byte": False}


class Collected:
    """The outcomes of finished items, in a file beside the results until all are there.

    path: of the results. identity: of the model, the settings and all requests: what is there of others is refused.
    """

    def __init__(self, path: Path, identity: str):
        self.partial = path.with_name(f".{path.name}.unfinished")
        self.identity = identity
        self.values: dict[tuple[int, int], Outcome] = {}
        self._file: FileIO | None = None

    def open(self) -> None:
        """Read what an earlier start has left, and go on behind it. Raises UserError where it is damaged or of
        something else, DataError where another process writes it."""
        self.partial.parent.mkdir(parents=True, exist_ok=True)
        self._file = open_alone(self.partial)
        try:
            self._read(self._file)
        except UserError:
            self.close()
            raise

    def _read(self, file: FileIO) -> None:
        file.seek(0)
        whole = [line for line in file.readall().splitlines(keepends=True) if line.endswith(b"\n")]
        try:
            identity, *stored = [json.loads(line) for line in whole] or [self.identity]
            self.values = {(task, item): values for task, item, values in stored}
        except (ValueError, TypeError):
            raise UserError(f"{self.partial}: damaged. Remove it; the evaluation begins anew.") from None
        if identity != self.identity:
            raise UserError(
                f"{self.partial}: of another model, other tasks or other settings. Remove it, or name another "
                "--output_file."
            )
        file.truncate(sum(map(len, whole)))  # a kill may have cut the last line
        if not whole:
            self._write(self.identity)

    def add(self, task: int, item: int, values: Outcome) -> None:
        self.values[task, item] = values
        if self._file:
            self._write([task, item, values])

    def _write(self, value: object) -> None:
        assert self._file
        write_all(self._file, json.dumps(value).encode() + b"\n")

    def close(self) -> None:
        if self._file:
            self._file.close()

    def finish(self) -> None:
        """The results are written."""
        self.partial.unlink(missing_ok=True)
        self.close()


def results(head: dict, tasks: list[Task], values: dict[tuple[int, int], Outcome]) -> dict:
    """What is written. head: of what was evaluated and how."""
    report = {}
    for number, task in enumerate(tasks):
        records = [task.record(index, values[number, index]) for index in range(len(task.items))]
        report[task.name] = {
            "items": len(records),
            **measures(records),
            "subjects": subjects(records),
            "records": records,
        }
    return head | {"tasks": report}


def write_results(path: Path, report: dict) -> None:
    with written_aside(path) as file:
        file.write((json.dumps(report, ensure_ascii=False, indent=1) + "\n").encode("utf-8"))


def table(report: dict) -> list[str]:
    """A line for each task."""
    names = [f"{name} ({of['items']:,})" for name, of in report["tasks"].items()]
    width = max(map(len, names))
    return [f"{name:<{width}}  {_shown(of)}" for name, of in zip(names, report["tasks"].values(), strict=True)]


def _shown(of: dict) -> str:
    if "bits_per_byte" in of:
        word, byte = of.get("word_perplexity", math.inf), of.get("byte_perplexity", math.inf)
        return f"word perplexity {word:,.2f}  byte perplexity {byte:.4f}  bits per byte {of['bits_per_byte']:.4f}"
    parts = [f"{name} {of[name]:.4f} ± {of[f'{name}_stderr']:.4f}" for name in OF_ITEMS if name in of]
    return "  ".join([*parts, f"{BLEU} {of[BLEU]:.2f}"] if BLEU in of else parts)


# ---- before and after


def read_results(path: Path) -> dict:
    """Raises DataError where it holds no results of an evaluation."""
    if not path.is_file():
        raise DataError(f"{path}: no such file. Name the results of make evaluate.")
    report = read_object(path)
    tasks = report.get("tasks")
    if not isinstance(tasks, dict) or not all(isinstance(of, dict) and of.get("records") for of in tasks.values()):
        raise DataError(f"{path}: no results of make evaluate: no 'tasks' with 'records'.")
    return report


def compare(before: dict, after: dict) -> list[str]:
    """A line for each setting in which they differ, and for each measure of each task that both have: the difference
    with a confidence interval, and whether it is more than noise. Raises DataError where no task has the same items in
    both, or a record is damaged."""
    try:
        lines = _compared(before, after)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"a record is none that make evaluate has written: {error!r}. Evaluate the damaged one of the two anew."
        ) from None
    if not lines:
        raise DataError("the two have no task with the same questions in common. Evaluate both on the same files.")
    return [*_other_settings(before, after), *sorted(lines)]


def _other_settings(before: dict, after: dict) -> list[str]:
    pairs = {key: (before.get(key), after.get(key)) for key in SETTINGS}
    return [
        f"{key}: " + " -> ".join("none" if value is None else shown(value, LONGEST_SETTING) for value in pair)
        for key, pair in pairs.items()
        if pair[0] != pair[1]
    ]


def _compared(before: dict, after: dict) -> list[str]:
    lines = []
    for name in before["tasks"].keys() & after["tasks"].keys():
        first, second = (report["tasks"][name]["records"] for report in (before, after))
        pairs = _same_items(first, second)
        if not pairs:
            continue
        left = f"{name} ({len(pairs):,})"
        for measure, higher in HIGHER_IS_BETTER.items():
            interval = _interval(pairs, measure)
            if interval is None:
                continue
            was, now, low, high = interval
            verdict = "noise" if low <= 0 <= high else "better" if (low > 0) == higher else "worse"
            if len(pairs) < FEWEST:
                verdict = f"fewer than {FEWEST} items: not judged"
            lines.append(
                f"{left}  {measure} {was:.4f} -> {now:.4f}  {now - was:+.4f} [{low:+.4f}, {high:+.4f}]  {verdict}"
            )
    return lines


def _same_items(first: list[dict], second: list[dict]) -> list[tuple[dict, dict]]:
    others = {record["digest"]: record for record in second}
    return [(record, others[record["digest"]]) for record in first if record["digest"] in others]


def _interval(pairs: list[tuple[dict, dict]], measure: str) -> tuple[float, float, float, float] | None:
    """(before, after, lower and upper bound of the difference): a paired bootstrap, which draws items anew and keeps
    both values of an item together (Efron & Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3)."""
    random = np.random.default_rng(0)
    if measure == "bits_per_byte":
        if "words" not in pairs[0][0]:
            return None
        bits, sizes = _bits(pairs)
        was, now = bits.sum(axis=0) / sizes.sum()
        differences = bits[:, 1] - bits[:, 0]
        drawn = _drawn(random, len(pairs), lambda picked: differences[picked].sum(axis=1) / sizes[picked].sum(axis=1))
    elif any(measure not in record for record in pairs[0]):
        return None
    elif measure == BLEU:
        sums = np.array([[record[BLEU] for record in pair] for pair in pairs], dtype=np.float64)
        was, now = map(corpus_bleu, sums.sum(axis=0))
        drawn = _drawn(random, len(pairs), lambda picked: np.array([_bleu_gain(sums, each) for each in picked]))
    else:
        values = np.array([[record[measure] for record in pair] for pair in pairs], dtype=np.float64)
        was, now = values.mean(axis=0)
        differences = values[:, 1] - values[:, 0]
        drawn = _drawn(random, len(pairs), lambda picked: differences[picked].mean(axis=1))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return float(was), float(now), float(low), float(high)


def _bits(pairs: list[tuple[dict, dict]]) -> tuple[np.ndarray, np.ndarray]:
    """(bits of each text before and after, [texts, 2]; bytes of each text)"""
    bits = np.array([[-record["log_likelihood"] / math.log(2) for record in pair] for pair in pairs])
    return bits, np.array([pair[0]["bytes"] for pair in pairs], dtype=np.float64)


def _bleu_gain(sums: np.ndarray, picked: np.ndarray) -> float:
    """sums: [answers, before and after, sums of BLEU]. picked: numbers of answers, some several times."""
    before, after = np.tensordot(np.bincount(picked, minlength=len(sums)), sums, axes=1)
    return corpus_bleu(after) - corpus_bleu(before)


def _drawn(random: np.random.Generator, items: int, mean) -> np.ndarray:
    """The mean of each resample; a few resamples at a time, for there may be many items."""
    step = max(1, (1 << 22) // items)
    sizes: Iterable[int] = (min(step, RESAMPLES - start) for start in range(0, RESAMPLES, step))
    return np.concatenate([mean(random.integers(0, items, (size, items))) for size in sizes])

"""Two results compared: differences with confidence intervals, and which are more than noise. No Paddle, no lm-eval.

Measures that are a mean over items are compared, and bits per byte.
"""

import math
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from data_tools.formats.errors import DataError
from data_tools.formats.json_files import read_object, shown

BITS = "bits_per_byte"
RESAMPLES = 10_000
CONFIDENCE = 0.95
FEWEST = 30  # items from which resamples say anything
# Of what was evaluated and how, what a comparison shows.
SETTINGS = (
    *("model", "adapter", "dtype"),
    *("weight_quantize_algo", "weight_blocksize", "weight_double_quant", "weight_double_quant_block_size"),
    "quantize_head",
    *("apply_chat_template", "num_fewshot", "split", "limit", "max_new_tokens"),
)
LONGEST_SETTING = 200  # characters: of a path


def read_results(path: Path) -> dict:
    """Return the results of a file.

    Raises:
        DataError: If it holds no results of an evaluation.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file. Name the results of make evaluate.")
    report = read_object(path)
    samples = report.get("samples")
    if not isinstance(samples, dict) or not samples or not all(isinstance(of, list) and of for of in samples.values()):
        raise DataError(f"{path}: no results of make evaluate, or older ones: no 'samples'. Evaluate anew.")
    return report


def compare(before: dict, after: dict) -> list[str]:
    """Return the differences between two evaluations.

    There is a line for each setting in which they differ, and for each measure of each task that both have: the
    difference with a confidence interval, and whether it is more than noise.

    Raises:
        DataError: If no task has the same items in both, or a record is damaged.
    """
    try:
        lines = _compared(before, after)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
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
    groups = before.get("group_subtasks", {})  # the tasks of a benchmark: of a group together, of others one
    grouped = {task for tasks in groups.values() for task in tasks}
    benchmarks = groups | {task: [task] for task in before["samples"] if task not in grouped}
    for name, tasks in benchmarks.items():
        pairs = _same_items(
            *([sample for task in tasks for sample in of["samples"].get(task, ())] for of in (before, after))
        )
        for of_filter, of_pairs in pairs.items():
            for measure in of_pairs[0][0]["metrics"]:
                interval = _interval(of_pairs, measure)
                if interval:
                    higher = before["higher_is_better"][tasks[0]].get(measure)
                    higher = True if higher is None else higher  # lm-eval's, of a measure that it does not know
                    if type(higher) is not bool:
                        raise ValueError(f"higher_is_better of {measure} is neither true nor false")
                    shown_as = measure if of_filter == "none" else f"{measure},{of_filter}"
                    line = _line(*interval, len(of_pairs), higher)
                    lines.append(f"{name} ({len(of_pairs):,})  {shown_as} {line}")
    return lines


def _line(was: float, now: float, low: float, high: float, items: int, higher: bool) -> str:
    if items < FEWEST:
        verdict = f"fewer than {FEWEST} items: not judged"
    elif low <= 0 <= high:
        verdict = "noise"
    else:
        verdict = "better" if (low > 0) == higher else "worse"
    return f"{was:.4f} -> {now:.4f}  {now - was:+.4f} [{low:+.4f}, {high:+.4f}]  {verdict}"


def _same_items(first: list[dict], second: list[dict]) -> dict[str, list[tuple[dict, dict]]]:
    """Return for each filter of answers the pairs of records about the same question with the same examples."""
    others = {(sample["filter"], sample["digest"]): sample for sample in second}
    pairs: dict[str, list[tuple[dict, dict]]] = {}
    for sample in first:
        other = others.get((sample["filter"], sample["digest"]))
        if other:
            pairs.setdefault(sample["filter"], []).append((sample, other))
    return pairs


def _interval(pairs: list[tuple[dict, dict]], measure: str) -> tuple[float, float, float, float] | None:
    """Return (before, after, lower and upper bound of the difference); None for an unknown measure that is no mean.

    It is a paired bootstrap, which draws items with replacement and keeps both values of an item together (Efron &
    Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3).
    """
    random = np.random.default_rng(0)
    if measure == BITS:
        bits = np.array([[-record[BITS][0] / math.log(2) for record in pair] for pair in pairs])  # [texts, 2]
        sizes = np.array([pair[0][BITS][1] for pair in pairs], dtype=np.float64)  # bytes of each text
        was, now = bits.sum(axis=0) / sizes.sum()
        differences = bits[:, 1] - bits[:, 0]
        drawn = _drawn(random, len(pairs), lambda picked: differences[picked].sum(axis=1) / sizes[picked].sum(axis=1))
    elif isinstance(pairs[0][0][measure], list):
        return None
    else:
        values = np.array([[record[measure] for record in pair] for pair in pairs], dtype=np.float64)
        was, now = values.mean(axis=0)
        differences = values[:, 1] - values[:, 0]
        drawn = _drawn(random, len(pairs), lambda picked: differences[picked].mean(axis=1))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    if not np.isfinite([was, now, low, high]).all():
        raise ValueError(f"{measure} is no number")
    return float(was), float(now), float(low), float(high)


def _drawn(random: np.random.Generator, items: int, mean: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the mean of each resample; a few resamples at a time, for there may be many items."""
    step = max(1, (1 << 22) // items)
    sizes: Iterable[int] = (min(step, RESAMPLES - start) for start in range(0, RESAMPLES, step))
    return np.concatenate([mean(random.integers(0, items, (size, items))) for size in sizes])

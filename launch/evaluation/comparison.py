"""Two results compared: differences with confidence intervals, and which are more than noise. No Paddle."""

import math
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from data_tools.formats.errors import DataError
from data_tools.formats.json_files import read_object, shown
from launch.evaluation.tasks import BITS, OF_ITEMS
from launch.evaluation.written_scores import BLEU, corpus_bleu

RESAMPLES = 10_000
CONFIDENCE = 0.95
FEWEST = 30  # items from which resamples say anything
# Of what was evaluated and how, what a comparison shows.
SETTINGS = (
    *("model", "adapter", "dtype"),
    *("weight_quantize_algo", "weight_blocksize", "weight_double_quant", "weight_double_quant_block_size"),
    *("apply_chat_template", "num_fewshot", "split", "limit", "max_new_tokens"),
)
LONGEST_SETTING = 200  # characters: of a path


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
        for measure in (*OF_ITEMS, BLEU, BITS) if pairs else ():
            interval = _interval(pairs, measure)
            if interval:
                lines.append(f"{name} ({len(pairs):,})  {measure} {_line(*interval, len(pairs), measure)}")
    return lines


def _line(was: float, now: float, low: float, high: float, items: int, measure: str) -> str:
    if items < FEWEST:
        verdict = f"fewer than {FEWEST} items: not judged"
    elif low <= 0 <= high:
        verdict = "noise"
    else:
        verdict = "better" if (low > 0) == (measure != BITS) else "worse"
    return f"{was:.4f} -> {now:.4f}  {now - was:+.4f} [{low:+.4f}, {high:+.4f}]  {verdict}"


def _same_items(first: list[dict], second: list[dict]) -> list[tuple[dict, dict]]:
    others = {record["digest"]: record for record in second}
    return [(record, others[record["digest"]]) for record in first if record["digest"] in others]


def _interval(pairs: list[tuple[dict, dict]], measure: str) -> tuple[float, float, float, float] | None:
    """(before, after, lower and upper bound of the difference): a paired bootstrap, which draws items anew and keeps
    both values of an item together (Efron & Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3)."""
    random = np.random.default_rng(0)
    if measure == BITS:
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
    if not np.isfinite([was, now, low, high]).all():
        raise ValueError(f"{measure} is no number")
    return float(was), float(now), float(low), float(high)


def _bits(pairs: list[tuple[dict, dict]]) -> tuple[np.ndarray, np.ndarray]:
    """(bits of each text before and after, [texts, 2]; bytes of each text)"""
    bits = np.array([[-record["log_likelihood"] / math.log(2) for record in pair] for pair in pairs])
    return bits, np.array([pair[0]["bytes"] for pair in pairs], dtype=np.float64)


def _bleu_gain(sums: np.ndarray, picked: np.ndarray) -> float:
    """sums: [answers, before and after, sums of BLEU]. picked: numbers of answers, some several times."""
    before, after = np.tensordot(np.bincount(picked, minlength=len(sums)), sums, axes=1)
    return corpus_bleu(after) - corpus_bleu(before)


def _drawn(random: np.random.Generator, items: int, mean: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The mean of each resample; a few resamples at a time, for there may be many items."""
    step = max(1, (1 << 22) // items)
    sizes: Iterable[int] = (min(step, RESAMPLES - start) for start in range(0, RESAMPLES, step))
    return np.concatenate([mean(random.integers(0, items, (size, items))) for size in sizes])

"""What is evaluated: questions and texts, and what their log-likelihoods or the answers to them say. No Paddle.

Measures are those of lm-evaluation-harness: acc takes the choice with the largest log-likelihood, acc_norm the one with
the largest per character; their standard errors are those of a mean, of several subjects pooled. A text's perplexities
are per word and per byte.
Source: https://github.com/EleutherAI/lm-evaluation-harness, lm_eval/api/task.py and lm_eval/api/metrics.py.
"""

import hashlib
import json
import math
import re
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np

from data_tools.formats.benchmarks.files import Asked, read_benchmark
from data_tools.formats.benchmarks.forms import FORMS
from data_tools.formats.benchmarks.written import WRITTEN
from data_tools.formats.han import are_chinese
from data_tools.text.sources import find_files, read_documents
from launch.errors import UserError
from launch.evaluation.benchmark_requests import Encoder
from launch.evaluation.shared_prefixes import Request
from launch.evaluation.written_scores import BLEU, MEANS, Scores, corpus_bleu

TEXT = "text"
NAMES = (*FORMS, TEXT)
OF_ITEMS = ("acc", "acc_norm", *MEANS)  # measures that are means of a value of each item
BITS = "bits_per_byte"
LARGEST_EXPONENT = math.log(sys.float_info.max)
Outcome = list[float] | str  # of an item: log-likelihoods of its requests, in nats, or the answer that was written


@dataclass(frozen=True)
class Item:
    """A question or a text. place: file and row. digest: of what is asked."""

    place: str
    digest: str
    asked: Asked | None = None
    text: str = ""


@dataclass(frozen=True)
class Task:
    """name: one of NAMES."""

    name: str
    items: list[Item]

    @property
    def until(self) -> tuple[str, ...]:
        """Texts that end an answer."""
        return FORMS[self.name].until

    @cached_property
    def scores(self) -> Scores | None:
        """Of answers that the model writes; None where it writes none."""
        form = WRITTEN.get(self.name)
        if not form:
            return None
        if form.chinese is not None:
            return Scores(form.measures, form.chinese)
        return Scores(form.measures, are_chinese(one for item in self.items for one in _right(item)))

    def requests(self, encoder: Encoder, item: Item) -> list[Request]:
        """One for each choice, the windows of a text, or what the model shall answer."""
        if not item.asked:
            return encoder.windows(item.text)
        return [encoder.prompt(item.asked)] if self.scores else encoder.choices(item.asked)

    def record(self, index: int, values: Outcome) -> dict:
        """What results hold of an item."""
        item = self.items[index]
        common = {"place": item.place, "digest": item.digest}
        if self.name == TEXT:
            words, size = len(re.split(r"\s+", item.text)), len(item.text.encode("utf-8"))
            return common | {"log_likelihood": sum(cast(list, values)), "words": words, "bytes": size}
        assert item.asked
        question = item.asked.question
        common["subject"] = question.subject
        if isinstance(values, str):
            assert self.scores
            return common | {"written": values} | self.scores.of(values, _right(item))
        normalized = [value / len(choice) for value, (_, choice) in zip(values, question.pairs, strict=True)]
        chosen = {"acc": int(np.argmax(values)), "acc_norm": int(np.argmax(normalized))}
        right = {name: int(chosen[name] == question.answer) for name in FORMS[self.name].measures}
        return common | {"log_likelihoods": values} | right


def _right(item: Item) -> list[str]:
    """The right answers to a question that is answered in words."""
    return [answer for _, answer in item.asked.question.pairs] if item.asked else []


def open_task(
    named: str, split: str | None, shots: int, limit: int | None, text_key: str = "text", max_bad_lines: int = 0
) -> Task:
    """named: NAME=PATH, or PATH, whose form is found. split, shots: see read_benchmark. limit: items at most. text_key,
    max_bad_lines: of texts, see read_documents.

    Raises UserError for an unknown name, DataError for files that cannot be used.
    """
    name, separator, path = named.partition("=")
    if not separator:
        name, path = "", named
    if not path or (separator and name not in NAMES):
        raise UserError(
            f"--tasks: found {named!r}, allowed: NAME=PATH, or PATH alone, with NAME one of {', '.join(NAMES)}."
        )
    if name == TEXT:
        documents = read_documents(find_files([path]), text_key, max_bad_lines)
        items = [Item(document.where, _digest(document.text), text=document.text) for document in documents]
        items = [item for item in items if item.text.strip()]
        if not items:
            raise UserError(f"--tasks {named}: no texts there. Name files with texts (docs/data.md).")
        return Task(TEXT, items[:limit])
    form, asked = read_benchmark(Path(path), name or None, split, shots)
    items = [Item(each.place, _digest(each.before, each.question.pairs, each.question.answer), each) for each in asked]
    return Task(form, items[:limit])


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def measures(records: list[dict]) -> dict[str, float]:
    """The measures of a task by the records of its items; without a perplexity that no float can hold."""
    if "words" in records[0]:
        total = sum(record["log_likelihood"] for record in records)
        words, size = (sum(record[key] for record in records) for key in ("words", "bytes"))
        nats = {"word_perplexity": -total / words, "byte_perplexity": -total / size}
        perplexities = {name: math.exp(value) for name, value in nats.items() if value < LARGEST_EXPONENT}
        return perplexities | {BITS: -total / size / math.log(2)}
    found = {}
    for name in (name for name in OF_ITEMS if name in records[0]):
        values = np.array([record[name] for record in records], dtype=np.float64)
        found |= {name: float(values.mean()), f"{name}_stderr": _stderr(values, records)}
    if BLEU in records[0]:
        found[BLEU] = corpus_bleu(np.sum([record[BLEU] for record in records], axis=0))
    return found


def _stderr(values: np.ndarray, records: list[dict]) -> float:
    """The standard error of the mean, from the spread within each subject."""
    groups: dict[str, list[float]] = {}
    for value, record in zip(values, records, strict=True):
        groups.setdefault(record["subject"], []).append(value)
    freedom = len(values) - len(groups)
    squares = sum(len(group) * np.var(group) for group in groups.values())
    return math.sqrt(squares / freedom / len(values)) if freedom else 0.0


def subjects(records: list[dict]) -> dict[str, dict]:
    """The measures of each subject, with the number of its questions; none where a task has no subjects."""
    groups: dict[str, list[dict]] = {}
    for record in records:
        groups.setdefault(record.get("subject", ""), []).append(record)
    groups.pop("", None)
    return {name: {"questions": len(of), **measures(of)} for name, of in sorted(groups.items())}

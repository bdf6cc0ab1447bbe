"""What is evaluated: questions and texts, and what their log-likelihoods or the answers to them say. No Paddle.

Measures are those of lm-evaluation-harness: acc takes the choice with the largest log-likelihood, acc_norm the one with
the largest per character; their standard errors are those of a mean. A text's perplexities are per word and per byte.
Source: https://github.com/EleutherAI/lm-evaluation-harness, lm_eval/api/task.py and lm_eval/api/metrics.py.
"""

import hashlib
import json
import math
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np

from data_tools.formats.benchmarks.files import Asked, read_benchmark
from data_tools.formats.benchmarks.forms import FORMS
from data_tools.formats.han import are_chinese
from data_tools.text.sources import find_files, read_documents
from launch.errors import UserError
from launch.evaluation.benchmark_requests import Encoder
from launch.evaluation.shared_prefixes import Request
from launch.evaluation.written_scores import BLEU, MEANS, Scores, corpus_bleu

TEXT = "text"
NAMES = (*FORMS, TEXT)
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
    """name: as results show it. form: one of NAMES."""

    name: str
    form: str
    items: list[Item]

    @property
    def until(self) -> tuple[str, ...]:
        """Texts that end an answer."""
        return FORMS[self.form].until

    @cached_property
    def scores(self) -> Scores | None:
        """Of answers that the model writes; None where it writes none."""
        form = FORMS.get(self.form)
        if not form or not form.measures:
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
        if self.form == TEXT:
            words, size = len(re.split(r"\s+", item.text)), len(item.text.encode("utf-8"))
            return common | {"log_likelihood": sum(cast(list, values)), "words": words, "bytes": size}
        assert item.asked
        question = item.asked.question
        common["subject"] = question.subject
        if isinstance(values, str):
            assert self.scores
            return common | {"written": values} | self.scores.of(values, _right(item))
        normalized = [value / length for value, length in zip(values, question.lengths, strict=True)]
        return common | {
            "log_likelihoods": values,
            "acc": int(np.argmax(values) == question.answer),
            "acc_norm": int(np.argmax(normalized) == question.answer),
        }


def _right(item: Item) -> list[str]:
    """The right answers to a question that is answered in words."""
    return [answer for _, answer in item.asked.question.pairs] if item.asked else []


def open_task(named: str, split: str | None, shots: int, limit: int | None) -> Task:
    """named: NAME=PATH, or PATH, whose form is found. split, shots: see read_benchmark. limit: items at most.

    Raises UserError for an unknown name, DataError for files that cannot be used.
    """
    name, separator, path = named.partition("=")
    if not separator:
        name, path = "", named
    if name and name not in NAMES:
        raise UserError(
            f"--tasks: found {named!r}, allowed: NAME=PATH, or PATH alone, with NAME one of {', '.join(NAMES)}."
        )
    if name == TEXT:
        documents = read_documents(find_files([path]))
        items = [Item(document.where, _digest(document.text), text=document.text) for document in documents]
        items = [item for item in items if item.text.strip()]
        if not items:
            raise UserError(f"--tasks {named}: no texts there. Name files with texts (docs/data.md).")
        return Task(TEXT, TEXT, items[:limit])
    form, asked = read_benchmark(Path(path), name or None, split, shots)
    items = [Item(each.place, _digest(each.before, each.question.pairs, each.question.answer), each) for each in asked]
    return Task(form, form, items[:limit])


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def measures(records: list[dict]) -> dict[str, float]:
    """The measures of a task by the records of its items."""
    if "words" in records[0]:
        total = sum(record["log_likelihood"] for record in records)
        words, size = (sum(record[key] for record in records) for key in ("words", "bytes"))
        return {
            "word_perplexity": _exp(-total / words),
            "byte_perplexity": _exp(-total / size),
            "bits_per_byte": -total / size / math.log(2),
        }
    found = {}
    for name in (name for name in ("acc", "acc_norm", *MEANS) if name in records[0]):
        values = np.array([record[name] for record in records], dtype=np.float64)
        spread = values.std(ddof=1) if len(values) > 1 else 0.0
        found |= {name: float(values.mean()), f"{name}_stderr": float(spread / math.sqrt(len(values)))}
    if BLEU in records[0]:
        found[BLEU] = corpus_bleu(np.sum([record[BLEU] for record in records], axis=0))
    return found


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def subjects(records: list[dict]) -> dict[str, dict]:
    """The measures of each subject, with the number of its questions; none where a task has no subjects."""
    groups: dict[str, list[dict]] = {}
    for record in records:
        groups.setdefault(record.get("subject", ""), []).append(record)
    groups.pop("", None)
    return {name: {"questions": len(of), **measures(of)} for name, of in sorted(groups.items())}

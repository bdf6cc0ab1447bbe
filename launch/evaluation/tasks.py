"""What is evaluated: questions with choices or texts, and what their log-likelihoods say. No Paddle.

Measures are those of lm-evaluation-harness: acc takes the choice with the largest log-likelihood, acc_norm the one with
the largest per character; their standard errors are those of a mean. A text's perplexities are per word and per byte.
Source: https://github.com/EleutherAI/lm-evaluation-harness, lm_eval/api/task.py and lm_eval/api/metrics.py.
"""

import hashlib
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_tools.formats.benchmarks.files import Asked, read_benchmark
from data_tools.formats.benchmarks.questions import FORMS
from data_tools.text.sources import find_files, read_documents
from launch.errors import UserError
from launch.evaluation.benchmark_requests import Encoder
from launch.evaluation.shared_prefixes import Request

TEXT = "text"
NAMES = (*FORMS, TEXT)


@dataclass(frozen=True)
class Item:
    """A question or a text. place: file and row. digest: of what is asked. words, size: of a text, in bytes."""

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

    def requests(self, encoder: Encoder) -> list[list[Request]]:
        """Those of each item: one for each choice, or the windows of a text."""
        if self.form == TEXT:
            return [encoder.windows(item.text) for item in self.items]
        return encoder.questions([item.asked for item in self.items if item.asked])

    def record(self, index: int, values: list[float]) -> dict:
        """What results hold of an item. values: log-likelihoods of its requests, in nats."""
        item = self.items[index]
        common = {"place": item.place, "digest": item.digest}
        if self.form == TEXT:
            words, size = len(re.split(r"\s+", item.text)), len(item.text.encode("utf-8"))
            return common | {"log_likelihood": sum(values), "words": words, "bytes": size}
        assert item.asked
        question = item.asked.question
        normalized = [value / length for value, length in zip(values, question.lengths, strict=True)]
        return common | {
            "subject": question.subject,
            "log_likelihoods": values,
            "acc": int(np.argmax(values) == question.answer),
            "acc_norm": int(np.argmax(normalized) == question.answer),
        }


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
    for name in ("acc", "acc_norm"):
        values = np.array([record[name] for record in records], dtype=np.float64)
        spread = values.std(ddof=1) if len(values) > 1 else 0.0
        found |= {name: float(values.mean()), f"{name}_stderr": float(spread / math.sqrt(len(values)))}
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

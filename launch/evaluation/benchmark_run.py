"""A model's log-likelihoods and answers for tasks, from where an earlier start ended to the results."""

import contextlib
import hashlib
import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from data_tools.formats.plural import plural
from data_tools.progress import counted
from launch.checkpoint.ranks import broadcast, rank
from launch.evaluation.benchmark_requests import Encoder
from launch.evaluation.benchmark_results import Collected, results, write_results
from launch.evaluation.likelihood import Scorer
from launch.evaluation.shared_prefixes import Request
from launch.evaluation.tasks import TEXT, Outcome, Task
from launch.generation.generate import Decoding
from launch.prediction.predictor import Predictor

ROUND = 1024  # requests that are sorted together; an item that is not finished is lost by a kill


@dataclass
class Evaluated:
    """A model, and how it is read. tokens: that are read at once, about. batch_size: answers that are written at once.
    longest: ids of an answer, at most."""

    predictor: Predictor
    tokens: int
    batch_size: int
    longest: int

    @cached_property
    def scorer(self) -> Scorer:
        return Scorer(self.predictor, self.tokens)

    def outcomes(
        self, task: Task, requests: list[list[Request]], items: list[int]
    ) -> Iterator[list[tuple[int, Outcome]]]:
        """(item, its outcome), some at a time. requests: of all items of the task."""
        if not task.scores:
            for of_round in rounds(requests, items):
                yield from log_likelihoods(self.scorer, requests, of_round, alike=task.name != TEXT)
        elif items:
            prompts = [list(requests[item][0].ids) for item in items]
            for batch in self.predictor.answer(prompts, Decoding(self.longest), self.batch_size, task.until):
                yield [(items[number], text) for number, text in batch]


def evaluate(model: Evaluated, encoder: Encoder, tasks: list[Task], head: dict, output: Path) -> dict | None:
    """Results of all tasks on rank 0, also in `output`. All ranks of a model call it together.

    head: what is evaluated and how. Raises UserError where `output` has unfinished results of something else.
    """
    requests = _requests(tasks, encoder)
    collected = Collected(output, identity(head, requests))
    if rank() == 0:
        collected.open()
    done = set(map(tuple, broadcast(list(collected.values) if rank() == 0 else None)))
    with contextlib.closing(collected):
        for number, (task, of_task) in enumerate(zip(tasks, requests, strict=True)):
            left = [index for index in range(len(of_task)) if (number, index) not in done]
            so_far = len(of_task) - len(left)
            # A bar for each: items of one cost about the same, those of two do not.
            with counted(f"evaluating {task.name}", len(of_task), shown=rank() == 0, before=so_far) as reach:
                for batch in model.outcomes(task, of_task, left):
                    for index, outcome in batch:
                        collected.add(number, index, outcome)
                    so_far += len(batch)
                    reach(so_far)
    if rank() != 0:
        return None
    report = results(head, tasks, collected.values)
    write_results(output, report)
    collected.finish()
    return report


def _requests(tasks: list[Task], encoder: Encoder) -> list[list[list[Request]]]:
    """Those of each item of each task. With many examples before many questions, tokenizing takes minutes."""
    requests = []
    with counted("tokenizing", sum(len(task.items) for task in tasks), shown=rank() == 0) as reach:
        for task in tasks:
            requests.append([])
            for item in task.items:
                requests[-1].append(task.requests(encoder, item))
                reach(sum(map(len, requests)))
    for task, of_task in zip(tasks, requests, strict=True):
        cut = sum(any(request.cut for request in of_item) for of_item in of_task)
        if cut and rank() == 0:
            print(
                f"{task.name}: {cut:,} of {plural(len(of_task), 'question')} longer than the model's "
                f"{encoder.positions:,} positions: the beginning is left out",
                file=sys.stderr,
            )
    return requests


def rounds(requests: list[list[Request]], items: list[int]) -> Iterator[list[int]]:
    """The items in parts, each with about ROUND requests."""
    before = np.cumsum([0, *(len(requests[item]) for item in items)])
    for _, of_round in itertools.groupby(zip(items, before // ROUND, strict=False), key=lambda pair: pair[1]):
        yield [item for item, _ in of_round]


def log_likelihoods(
    scorer: Scorer, requests: list[list[Request]], items: list[int], alike: bool
) -> Iterator[list[tuple[int, Outcome]]]:
    """(item, log-likelihood of each of its requests), as soon as it has all. alike: see Scorer.scores."""
    nothing: list[tuple[int, Outcome]] = [(item, []) for item in items if not requests[item]]  # texts without tokens
    if nothing:
        yield nothing
    flat = [(item, place) for item in items for place in range(len(requests[item]))]
    found: dict[int, dict[int, float]] = {item: {} for item in items}
    for number, value in scorer.scores([requests[item][place] for item, place in flat], alike):
        item, place = flat[number]
        found[item][place] = value
        if len(found[item]) == len(requests[item]):
            yield [(item, [found[item][place] for place in range(len(requests[item]))])]


def identity(head: dict, requests: list[list[list[Request]]]) -> str:
    """SHA-256 of everything that the outcomes depend on."""
    digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for of_task in requests:
        for of_item in of_task:
            digest.update(json.dumps([[request.ids, request.start] for request in of_item]).encode())
    return digest.hexdigest()

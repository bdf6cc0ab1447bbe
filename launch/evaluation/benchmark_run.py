"""A model's log-likelihoods for tasks, from where an earlier start ended to the results."""

import contextlib
import hashlib
import json
from pathlib import Path

from data_tools.progress import counted
from launch.checkpoint.ranks import broadcast, rank
from launch.evaluation.benchmark_requests import Encoder
from launch.evaluation.benchmark_results import Collected, results, write_results
from launch.evaluation.likelihood import Scorer
from launch.evaluation.shared_prefixes import Request
from launch.evaluation.tasks import Task

ROUND = 256  # items whose requests are sorted together, and are lost together by a kill


def evaluate(scorer: Scorer, encoder: Encoder, tasks: list[Task], head: dict, output: Path) -> dict | None:
    """Results of all tasks on rank 0, also in `output`. All ranks of a model call it together.

    head: what is evaluated and how. Raises UserError where `output` has unfinished results of something else.
    """
    requests = [task.requests(encoder) for task in tasks]
    collected = Collected(output, identity(head, requests))
    if rank() == 0:
        collected.open()
    done = set(map(tuple, broadcast(list(collected.values) if rank() == 0 else None)))
    with contextlib.closing(collected), counted("evaluating", sum(map(len, requests)), shown=rank() == 0) as reach:
        for number, of_task in enumerate(requests):
            left = [index for index in range(len(of_task)) if (number, index) not in done]
            for start in range(0, len(left), ROUND):
                for index, values in _scores(scorer, of_task, left[start : start + ROUND]):
                    collected.add(number, index, values)
                reach(len(collected.values))
    if rank() != 0:
        return None
    report = results(head, tasks, collected.values)
    write_results(output, report)
    collected.finish()
    return report


def _scores(scorer: Scorer, requests: list[list[Request]], items: list[int]) -> list[tuple[int, list[float]]]:
    """(item, log-likelihood of each of its requests)"""
    flat = [(item, place) for item in items for place in range(len(requests[item]))]
    found = {item: [0.0] * len(requests[item]) for item in items}
    for number, value in scorer.scores([requests[item][place] for item, place in flat]):
        item, place = flat[number]
        found[item][place] = value
    return list(found.items())


def identity(head: dict, requests: list[list[list[Request]]]) -> str:
    """SHA-256 of everything that the log-likelihoods depend on."""
    digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for of_task in requests:
        for of_item in of_task:
            digest.update(json.dumps([[request.ids, request.start] for request in of_item]).encode())
    return digest.hexdigest()

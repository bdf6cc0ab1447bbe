"""Counters of a server, as Prometheus reads them."""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from launch.serving.answer import Answer
from launch.serving.batching.engine import Engine
from launch.serving.errors import Refusal

SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
ROWS = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Of one server: a registry of its own, so that several can be in one process."""

    def __init__(self, engine: Engine):
        self.registry = CollectorRegistry()
        ours = {"registry": self.registry, "namespace": "serving"}
        self.requests = Counter("requests", "Requests by model and outcome", ["model", "outcome"], **ours)
        self.prompt_tokens = Counter("prompt_tokens", "Tokens of prompts", ["model"], **ours)
        self.completion_tokens = Counter("completion_tokens", "Tokens of answers", ["model"], **ours)
        self.seconds = Histogram("request_seconds", "From arrival to the end", ["model"], buckets=SECONDS, **ours)
        self.batch = Histogram("batch_rows", "Rows of a batch", buckets=ROWS, **ours)
        Gauge("waiting_rows", "Rows in the queue", **ours).set_function(engine.depth)
        Gauge("running_rows", "Rows in work", **ours).set_function(lambda: len(engine.running))

    def refused(self, refusal: Refusal) -> None:
        self.requests.labels("", refusal.reason.name.lower()).inc()

    def started(self, model: str, answer: Answer) -> None:
        began = time.monotonic()

        def ended(answer: Answer, outcome: str) -> None:
            self.requests.labels(model, outcome).inc()
            self.prompt_tokens.labels(model).inc(answer.prompt_tokens)
            self.completion_tokens.labels(model).inc(answer.completion_tokens)
            self.seconds.labels(model).observe(time.monotonic() - began)

        answer.on_end = ended

    def text(self) -> bytes:
        return generate_latest(self.registry)

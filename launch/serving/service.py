"""What REST and gRPC share: requests checked, turned into ids, queued, and answered with text as it is made.

Their counters are those that Prometheus reads.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from launch.serving.answer import Answer
from launch.serving.engine import Engine, QueueFull
from launch.serving.request import Options, Reason, Refusal, Row

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


@dataclass(frozen=True)
class Limits:
    """answer: tokens. batch, places: rows together, rows that wait. seconds: for a request."""

    answer: int
    batch: int
    places: int
    seconds: float


class Service:
    """Models by name (launch/serving/models.py: Served), in front of one engine."""

    def __init__(self, models: dict, limits: Limits):
        self.models = models
        self.limits = limits
        self.engine = Engine(self._answer_rows, limits.batch, limits.places)
        self.encoder = ThreadPoolExecutor(1, "encoder")  # a long text must not keep the event loop from all others
        self.metrics = Metrics(self.engine)
        self.started = int(time.time())
        self.stopping = False

    async def complete(self, model: str, prompts: list[str] | list[list[int]], options: Options) -> Answer:
        """Queue answers to texts or lists of ids. Raises Refusal where there cannot be any, or not now."""

        def encode(served) -> list[list[int]]:
            ids = [
                served.prompts.of_text(prompt) if isinstance(prompt, str) else served.prompts.of_ids(prompt)
                for prompt in prompts
            ]
            return [prompt for prompt in ids for _ in range(options.n)]

        return await self._start(model, encode, len(prompts) * options.n, options)

    async def chat(self, model: str, messages: list[dict], options: Options) -> Answer:
        """Queue answers to a chat. Raises Refusal where there cannot be any, or not now."""
        encode = lambda served: [served.prompts.of_chat(messages)] * options.n  # noqa: E731
        return await self._start(model, encode, options.n, options)

    def model(self, name: str):
        """Raises Refusal for a name that no model has."""
        if name not in self.models:
            raise Refusal(Reason.UNKNOWN_MODEL, f"model: found {name!r}, there are {', '.join(self.models)}", "model")
        return self.models[name]

    def refuse_more(self) -> None:
        """From now on; earlier requests are answered."""
        self.stopping = True

    async def _start(self, name: str, encode: Callable, answers: int, options: Options) -> Answer:
        try:
            answer = await self._queued(name, encode, answers, options)
        except Refusal as refusal:
            self.metrics.refused(refusal)
            raise
        self.metrics.started(name, answer)
        return answer

    async def _queued(self, name: str, encode: Callable, answers: int, options: Options) -> Answer:
        deadline = time.monotonic() + self.limits.seconds
        if self.stopping:
            raise Refusal(Reason.STOPPING, "the server is stopping")
        served = self.model(name)
        if options.n > self.limits.places:
            raise Refusal(Reason.INVALID, f"n: found {options.n}, at most {self.limits.places}", "n")
        if not 0 < answers <= self.limits.places:
            raise Refusal(Reason.INVALID, f"prompt: {answers} answers wanted, 1 to {self.limits.places}", "prompt")
        prompts = await asyncio.get_running_loop().run_in_executor(self.encoder, encode, served)
        answer = Answer(
            served, prompts, [self._length(served, prompt, options) for prompt in prompts], options, deadline
        )
        try:
            self.engine.submit(answer.rows)
        except QueueFull as full:
            raise Refusal(Reason.BUSY, f"{full}: ask again later") from None
        return answer

    def _length(self, served, prompt: list[int], options: Options) -> int:
        """The most tokens that the answer may have. Raises Refusal where there is no room for what was requested."""
        if not prompt:
            raise Refusal(Reason.INVALID, "prompt: no token to begin with", "prompt")
        room = served.positions - len(prompt)
        if room <= 0:
            raise Refusal(Reason.INVALID, f"prompt: {len(prompt)} tokens leave no position for an answer", "prompt")
        most = min(self.limits.answer, room)
        if options.max_tokens and options.max_tokens > most:
            raise Refusal(
                Reason.INVALID,
                f"max_tokens: found {options.max_tokens}, at most {self.limits.answer} (--max_new_tokens); after "
                f"{len(prompt)} tokens of the prompt there are positions for {room}",
                "max_tokens",
            )
        return options.max_tokens or most

    def _answer_rows(self, rows: list[Row]) -> None:
        self.metrics.batch.observe(len(rows))
        self.models[rows[0].group[0]].answer(rows)

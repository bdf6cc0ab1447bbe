"""What REST and gRPC share: requests checked, turned into ids, queued, and answered with text as it is made.

One thread, the engine, answers rows batch by batch, fed from a bounded queue. Rows that wait together go together: the
first one, and those behind it of the same group, up to the size of a batch, and as far as the longest prompt, to which
all are padded, and the longest answer fit into the model's positions. The next batch begins when the last row of this
one has ended. Where a batch fails, each of its rows goes on alone.

The counters are those that Prometheus reads.
"""

import asyncio
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from launch.serving.answer import Answer, Echo
from launch.serving.request import Finish, Options, Reason, Refusal, Row

GATHERING_SECONDS = 0.005  # how long the first row of an idle engine waits for others that come with it


class QueueFull(Exception):
    """The queue has no room for another request."""


class Engine:
    """Answers rows in batches. answer(rows) calls put() of each row until all are done. largest_batch, places: rows."""

    def __init__(self, answer: Callable[[list[Row]], None], largest_batch: int, places: int):
        self.answer = answer
        self.largest_batch = largest_batch
        self.places = places
        self.waiting: deque[Row] = deque()
        self.running: list[Row] = []
        self.stopping = False
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self._work, name="engine", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def submit(self, rows: list[Row]) -> None:
        """Put all rows of a request into the queue. Raises QueueFull where there is no room for all of them."""
        with self.changed:
            self._remove_done()
            if len(self.waiting) + len(rows) > self.places:
                raise QueueFull(f"{len(self.waiting)} of {self.places} places of the queue are taken")
            self.waiting.extend(rows)
            self.changed.notify_all()

    def depth(self) -> int:
        """The number of waiting rows."""
        with self.changed:
            self._remove_done()
            return len(self.waiting)

    def stop(self, seconds: float) -> None:
        """End the thread. Rows that are not done are cancelled; the running batch ends with its next token."""
        with self.changed:
            self.stopping = True
            for row in (*self.waiting, *self.running):
                row.cancel()
            self.changed.notify_all()
        self.thread.join(seconds)

    def _work(self) -> None:
        while rows := self._next_batch():
            self.running = rows
            self._answer(rows)
            self.running = []

    def _answer(self, rows: list[Row]) -> None:
        try:
            self.answer(rows)
        except Exception:  # a row that fails must end neither the server nor the other rows
            traceback.print_exc(file=sys.stderr)
        left = [row for row in rows if not row.done]
        for row in left:
            if len(rows) > 1 and not self.stopping:
                self._answer([row])
            row.finish(Finish.FAILED)

    def _next_batch(self) -> list[Row]:
        """Wait for rows, and take a batch of one group; empty when the engine stops."""
        with self.changed:
            while not self.stopping:
                if not self.waiting:
                    self.changed.wait_for(lambda: self.waiting or self.stopping)
                    self.changed.wait_for(self._is_full, GATHERING_SECONDS)
                self._remove_done()
                if self.waiting:
                    return self._take_batch()
            return []

    def _take_batch(self) -> list[Row]:
        group = self.waiting[0].group
        rows, prompt, answer = [], 0, 0
        for row in self.waiting:
            padded, longest = max(prompt, len(row.prompt)), max(answer, row.max_tokens)
            fits = not rows or padded + longest <= row.positions and len(rows) < self.largest_batch
            if row.group == group and fits:
                rows.append(row)
                prompt, answer = padded, longest
        self.waiting = deque(row for row in self.waiting if row not in rows)
        return rows

    def _is_full(self) -> bool:
        return self.stopping or len(self.waiting) >= self.largest_batch

    def _remove_done(self) -> None:
        """Remove rows whose clients are gone or whose time is over."""
        now = time.monotonic()
        for row in self.waiting:
            if now > row.deadline:
                row.finish(Finish.LATE)
        self.waiting = deque(row for row in self.waiting if not row.done)


SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
ROWS = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """The counters of one server, in a registry of its own, so that a process can have several."""

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
    """answer: tokens, at most. batch: rows answered together. places: rows that may wait. seconds: for a request."""

    answer: int
    batch: int
    places: int
    seconds: float


class Service:
    """Models by name (launch/serving/models.py: Served), which share one engine."""

    def __init__(self, models: dict, limits: Limits):
        self.models = models
        self.limits = limits
        self.engine = Engine(self._answer_rows, limits.batch, limits.places)
        self.encoder = ThreadPoolExecutor(1, "encoder")  # a long text must not block the event loop
        self.metrics = Metrics(self.engine)
        self.started = int(time.time())
        self.stopping = False

    async def complete(self, model: str, prompts: list[str] | list[list[int]], options: Options) -> Answer:
        """Queue answers to texts or lists of ids. Raises Refusal where there cannot be any, or not now."""

        def encode(served, prompt: str | list[int]) -> list[int]:
            return served.prompts.of_text(prompt) if isinstance(prompt, str) else served.prompts.of_ids(prompt)

        return await self._start(model, encode, prompts, options)

    async def chat(self, model: str, messages: list[dict], options: Options) -> Answer:
        """Queue answers to a chat. Raises Refusal where there cannot be any, or not now."""
        return await self._start(model, lambda served, chat: served.prompts.of_chat(chat), [messages], options)

    def model(self, name: str):
        """The model of this name. Raises Refusal where there is none."""
        if name not in self.models:
            raise Refusal(Reason.UNKNOWN_MODEL, f"model: found {name!r}, there are {', '.join(self.models)}", "model")
        return self.models[name]

    def refuse_more(self) -> None:
        """Refuse requests from now on; earlier ones are answered."""
        self.stopping = True

    async def _start(self, name: str, encode: Callable, prompts: list, options: Options) -> Answer:
        """encode: from a model and one of the prompts to its ids."""
        try:
            answer = await self._queued(name, encode, prompts, options)
        except Refusal as refusal:
            self.metrics.refused(refusal)
            raise
        self.metrics.started(name, answer)
        return answer

    async def _queued(self, name: str, encode: Callable, prompts: list, options: Options) -> Answer:
        deadline = time.monotonic() + self.limits.seconds
        if self.stopping:
            raise Refusal(Reason.STOPPING, "the server is stopping")
        served = self.model(name)
        if options.n > self.limits.places:
            raise Refusal(Reason.INVALID, f"n: found {options.n}, at most {self.limits.places}", "n")
        answers = len(prompts) * options.n
        if not 0 < answers <= self.limits.places:
            raise Refusal(Reason.INVALID, f"prompt: {answers} answers wanted, 1 to {self.limits.places}", "prompt")
        if options.scores_prompt is not None and not served.causal:
            found = f"{name} reads a prompt in both directions, so its tokens have no likelihoods"
            raise Refusal(Reason.INVALID, f"prompt_logprobs: {found}", "prompt_logprobs")
        served.prompts.require_known((token for token, _ in options.logit_bias), "logit_bias")
        run = partial(asyncio.get_running_loop().run_in_executor, self.encoder)
        encoded = await run(lambda: [encode(served, prompt) for prompt in prompts])
        ids = [one for one in encoded for _ in range(options.n)]
        lengths = [self._length(served, one, options) for one in ids]
        given = [prompt for prompt in prompts for _ in range(options.n)]
        echoes = await run(_echoes, served.decode, given, ids) if options.echo else None
        answer = Answer(served, ids, lengths, options, deadline, echoes)
        if options.max_tokens == 0 and options.scores_prompt is None:  # an echo alone
            for row in answer.rows:
                row.finish(Finish.LENGTH)
            return answer
        try:
            self.engine.submit(answer.rows)
        except QueueFull as full:
            raise Refusal(Reason.BUSY, f"{full}: ask again later") from None
        return answer

    def _length(self, served, prompt: list[int], options: Options) -> int:
        """The largest length of the answer, in tokens. Raises Refusal where the requested length does not fit."""
        if not prompt:
            raise Refusal(Reason.INVALID, "prompt: no token to begin with", "prompt")
        room = served.positions - len(prompt)
        if room < 0 or room == 0 and options.max_tokens != 0:
            raise Refusal(Reason.INVALID, f"prompt: {len(prompt)} tokens leave no position for an answer", "prompt")
        most = min(self.limits.answer, room)
        if options.max_tokens is not None and options.max_tokens > most:
            raise Refusal(
                Reason.INVALID,
                f"max_tokens: found {options.max_tokens}, at most {self.limits.answer} (--max_new_tokens); after "
                f"{len(prompt)} tokens of the prompt there are positions for {room}",
                "max_tokens",
            )
        return most if options.max_tokens is None else options.max_tokens

    def _answer_rows(self, rows: list[Row]) -> None:
        self.metrics.batch.observe(len(rows))
        self.models[rows[0].group[0]].answer(rows)


def _echoes(decode: Callable, prompts: list[str | list[int]], ids: list[list[int]]) -> list[Echo]:
    return [Echo(decode, given, encoded) for given, encoded in zip(prompts, ids, strict=True)]

"""What REST and gRPC share: requests checked, turned into ids, queued, and answered with text as it is made.

The counters are those that Prometheus reads.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from data_tools.formats.json_files import quoted
from launch.generation.answer_parts import PLAIN, Reading
from launch.serving.answer import Answer, Echo, before
from launch.serving.chats import Chat
from launch.serving.engine import GenerationEngine, QueueFull
from launch.serving.request import MOST_LIKELIHOODS, Finish, Options, Reason, Refusal
from launch.serving.whole_batches import Batch

SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
HUNG_SECONDS = 60.0  # that a step may go on after the time of all its requests is over
ROWS = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """The counters of one server, in a registry of its own, so that a process can have several."""

    def __init__(self, engine: GenerationEngine):
        self.registry = CollectorRegistry()
        ours = {"registry": self.registry, "namespace": "serving"}
        self.requests = Counter("requests", "Requests by model and outcome", ["model", "outcome"], **ours)
        self.prompt_tokens = Counter("prompt_tokens", "Tokens of prompts", ["model"], **ours)
        self.completion_tokens = Counter("completion_tokens", "Tokens of answers", ["model"], **ours)
        self.seconds = Histogram("request_seconds", "From arrival to the end", ["model"], buckets=SECONDS, **ours)
        self.batch = Histogram("batch_rows", "Rows of a step", buckets=ROWS, **ours)
        Gauge("waiting_rows", "Rows in the queue", **ours).set_function(engine.depth)
        Gauge("running_rows", "Rows in work", **ours).set_function(lambda: len(engine.batch.rows))
        engine.on_step = self.batch.observe

    def refused(self, refusal: Refusal) -> None:
        """Count a refusal."""
        self.requests.labels("", refusal.reason.name.lower()).inc()

    def started(self, model: str, answer: Answer) -> None:
        """Count an answer when it ends."""
        began = time.monotonic()

        def ended(answer: Answer, outcome: str) -> None:
            self.requests.labels(model, outcome).inc()
            self.prompt_tokens.labels(model).inc(answer.prompt_tokens)
            self.completion_tokens.labels(model).inc(answer.completion_tokens)
            self.seconds.labels(model).observe(time.monotonic() - began)

        answer.on_end = ended

    def text(self) -> bytes:
        """Return the metrics in Prometheus' form."""
        return generate_latest(self.registry)


@dataclass(frozen=True)
class RequestLimits:
    """The limits of requests.

    Attributes:
        answer: Tokens, at most.
        places: Rows that may wait.
        seconds: For a request.
    """

    answer: int
    places: int
    seconds: float


class Service:
    """Models by name (launch/serving/models.py: Served), which share one engine.

    Attributes:
        batch: What it answers them with.
    """

    def __init__(self, models: dict, batch: Batch, limits: RequestLimits):
        self.models = models
        self.limits = limits
        self.engine = GenerationEngine(batch, limits.places)
        self.encoder = ThreadPoolExecutor(1, "encoder")  # a long text must not block the event loop
        self.metrics = Metrics(self.engine)
        self.started = int(time.time())
        self.stopping = False

    async def complete(self, model: str, prompts: list[str] | list[list[int]], options: Options) -> Answer:
        """Queue answers to texts or lists of ids.

        Raises:
            Refusal: If there cannot be any, or not now.
        """

        def encode(served, prompt: str | list[int]) -> tuple[list[int], Reading]:
            of = served.prompts.of_text if isinstance(prompt, str) else served.prompts.of_ids
            return of(prompt), PLAIN

        return await self._start(model, encode, prompts, options)

    async def chat(self, model: str, chat: Chat, options: Options) -> Answer:
        """Queue answers to a chat.

        Raises:
            Refusal: If there cannot be any, or not now.
        """
        return await self._start(model, lambda served, chat: served.prompts.of_chat(chat), [chat], options)

    async def tokens(self, model: str, chat: Chat) -> list[int]:
        """Return the ids that a model reads before it answers a chat.

        Raises:
            Refusal: If it cannot.
        """
        ids, _ = await self._encoded(time.monotonic() + self.limits.seconds, self.model(model).prompts.of_chat, chat)
        return ids

    def model(self, name: str):
        """Return the model of this name.

        Raises:
            Refusal: If there is none.
        """
        if name not in self.models:
            raise Refusal(
                Reason.UNKNOWN_MODEL, f"model: found {quoted(name)}, there are {', '.join(self.models)}", "model"
            )
        return self.models[name]

    def require_running(self) -> None:
        """Raise Refusal once the server no longer answers."""
        if self.stopping:
            raise Refusal(Reason.STOPPING, "the server is stopping")
        if self.engine.ended:
            raise Refusal(Reason.FAILED, "the thread that answers has ended; the server's terminal says why")
        if (seconds := self.engine.step_seconds()) > self.limits.seconds + HUNG_SECONDS:
            found = f"a step has lasted {seconds:.0f} s, longer than any request may: a card or a rank hangs"
            raise Refusal(Reason.FAILED, f"{found}. Start the server again.")

    def refuse_more(self) -> None:
        """Refuse requests from now on; earlier ones are answered."""
        self.stopping = True

    async def _start(self, name: str, encode: Callable, prompts: list, options: Options) -> Answer:
        """Start the answers.

        encode: maps a model and one of the prompts to its ids and the way its answers are read.
        """
        try:
            answer = await self._queued(name, encode, prompts, options)
        except Refusal as refusal:
            self.metrics.refused(refusal)
            raise
        self.metrics.started(name, answer)
        return answer

    async def _queued(self, name: str, encode: Callable, prompts: list, options: Options) -> Answer:
        deadline = time.monotonic() + self.limits.seconds
        self.require_running()
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

        run = partial(self._encoded, deadline)
        found = await run(lambda: [encode(served, prompt) for prompt in prompts])
        encoded, reading = [ids for ids, _ in found], found[0][1]
        ids = [one for one in encoded for _ in range(options.n)]
        lengths = [self._length(served, one, options) for one in ids]
        wanted = sum(options.likelihoods(len(one), length) for one, length in zip(ids, lengths, strict=True))
        if wanted > MOST_LIKELIHOODS:
            found = f"found {wanted:,} log-probabilities in all answers together, expected {MOST_LIKELIHOODS:,} at most"
            raise Refusal(Reason.INVALID, f"logprobs: {found}. Ask for fewer, or send the prompts apart.", "logprobs")
        echoes = await run(_echoes, served.decode, prompts, encoded, options.n) if options.echo else None
        grammars = await run(served.grammars, options, reading, len(ids))
        answer = Answer(served, ids, lengths, options, deadline, echoes, grammars, reading)
        if options.max_tokens == 0 and options.scores_prompt is None:  # an echo alone
            for row in answer.rows:
                row.finish(Finish.LENGTH)
            return answer
        try:
            self.engine.submit(answer.rows)
        except QueueFull as full:
            raise Refusal(Reason.BUSY, f"{full}: ask again later") from None
        return answer

    async def _encoded(self, deadline: float, function: Callable, *arguments):
        loop = asyncio.get_running_loop()
        return await before(deadline, loop.run_in_executor(self.encoder, function, *arguments))

    def _length(self, served, prompt: list[int], options: Options) -> int:
        """Return the largest length of the answer, in tokens.

        Raises Refusal where the requested length does not fit.
        """
        if not prompt:
            raise Refusal(Reason.INVALID, "prompt: no token to begin with", "prompt")
        wanted = len(prompt) + (1 if options.max_tokens is None else options.max_tokens)
        memory = self.engine.batch.room(served.name)
        if wanted > memory:
            found = f"{wanted} tokens with the answer, keys and values have memory for {memory:.0f} (--kv_cache_gb)"
            raise Refusal(Reason.INVALID, f"prompt: {found}", "prompt")
        longest = self.engine.batch.longest_scored(served.name)
        if options.scores_prompt is not None and len(prompt) > longest:
            found = f"{len(prompt)} tokens, log-probabilities of a prompt have memory for {longest}"
            raise Refusal(Reason.INVALID, f"prompt: {found} (--kv_cache_gb)", "prompt")
        room = served.positions - len(prompt)
        if room < 0 or room == 0 and options.max_tokens != 0:
            raise Refusal(Reason.INVALID, f"prompt: {len(prompt)} tokens leave no position for an answer", "prompt")
        most = int(min(self.limits.answer, room, memory - len(prompt)))
        if options.max_tokens is not None and options.max_tokens > most:
            raise Refusal(
                Reason.INVALID,
                f"max_tokens: found {options.max_tokens}, at most {self.limits.answer} (--max_new_tokens); after "
                f"{len(prompt)} tokens of the prompt there are positions for {room}",
                "max_tokens",
            )
        return most if options.max_tokens is None else options.max_tokens


def _echoes(decode: Callable, prompts: list[str | list[int]], ids: list[list[int]], answers: int) -> list[Echo]:
    """Return the echo of each prompt, for each of its answers."""
    echoes = [Echo(decode, given, encoded) for given, encoded in zip(prompts, ids, strict=True)]
    return [echo for echo in echoes for _ in range(answers)]

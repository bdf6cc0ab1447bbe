"""Requests: what is refused and with which status, the options of an answer, and rows in the batches of the engine.

A row draws its tokens with random numbers of its own: a batch's other rows change nothing.
"""

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from data_tools.formats.json_files import read_object, shown
from launch.errors import UserError
from launch.generation.drawing import draw

if TYPE_CHECKING:
    from launch.serving.json_grammar import Grammar  # its package is optional


def shortened(message: str) -> str:
    """Return a message in which no word, such as a client's path or key, has more than 150 characters."""
    return re.sub(r"(\S{150})\S+", r"\1...", message)


class Reason(Enum):
    """The reason of a refusal: (HTTP status, name of the gRPC status, type in the OpenAI API)."""

    INVALID = (400, "INVALID_ARGUMENT", "invalid_request_error")
    NO_KEY = (401, "UNAUTHENTICATED", "authentication_error")
    UNKNOWN_MODEL = (404, "NOT_FOUND", "invalid_request_error")
    SLOW = (408, "DEADLINE_EXCEEDED", "timeout_error")
    TOO_LARGE = (413, "RESOURCE_EXHAUSTED", "invalid_request_error")
    BUSY = (429, "RESOURCE_EXHAUSTED", "rate_limit_error")
    FAILED = (500, "INTERNAL", "server_error")
    STOPPING = (503, "UNAVAILABLE", "server_error")
    LATE = (504, "DEADLINE_EXCEEDED", "timeout_error")

    @property
    def http(self) -> int:
        """The HTTP status."""
        return self.value[0]

    @property
    def grpc(self) -> str:
        """The name of the gRPC status."""
        return self.value[1]


@dataclass
class Refusal(Exception):
    """Why a request is not answered.

    Attributes:
        parameter: The one that is wrong.
    """

    reason: Reason
    message: str
    parameter: str | None = None

    def __post_init__(self):
        self.message = shown(shortened(self.message), LONGEST_MESSAGE)  # it has texts of the client

    def body(self) -> dict:
        """Return the error in the OpenAI API's form."""
        return {
            "error": {
                "message": self.message,
                "type": self.reason.value[2],
                "param": self.parameter,
                "code": self.reason.name.lower(),
            }
        }


MOST_ITEMS = 2**14  # of a list of texts or messages
LONGEST_MESSAGE = 1000  # characters
STOP_WORDS, STOP_LENGTH = 16, 256  # at most, of a request; characters
MOST_LIKELY = 20  # tokens whose log-probabilities are returned, at most
MOST_LIKELIHOODS = 2**19  # of all answers to a request: writing them as JSON stops what else the server does


class Finish(str, Enum):
    """Why an answer ended, in the words of the OpenAI API; FAILED, BEYOND and LATE are errors."""

    STOP = "stop"
    LENGTH = "length"
    FAILED = "failed"
    BEYOND = "beyond"
    LATE = "late"


@dataclass(frozen=True)
class Options:
    """The options by which answers are made. Raises Refusal for impossible values.

    Attributes:
        max_tokens: None: as many as there is room for.
        temperature: 0: always the most likely token.
        top_k, top_p: 0 or -1, and 1: among all.
        frequency_penalty, presence_penalty: Subtracted from the logits of the answer's tokens so far, for each
            occurrence, and once.
        logit_bias: Ids, and the numbers added to their logits.
        seed: The same seed gives the same answer, in whatever batch; None: another one each time.
        stop: Texts that end an answer and are no part of it.
        json_schema: Of the answer, as JSON; None: it is text.
        n: Answers to each prompt.
        logprobs: The number of most likely tokens whose log-probabilities are returned in each place, beside the
            answer's own; None: no log-probabilities.
        prompt_logprobs: The same for the prompt's tokens.
        echo: The prompt stands before its answer, with its log-probabilities where the answer's are requested.
        stream: Text is sent as soon as there is some.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    stop: tuple[str, ...] = ()
    json_schema: str | None = None
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    echo: bool = False
    stream: bool = False

    def __post_init__(self):
        if not (self.max_tokens == 0 and (self.echo or self.prompt_logprobs is not None)):
            allowed = "above 0, or 0 with echo or prompt_logprobs"
            _require("max_tokens", self.max_tokens, self.max_tokens is None or self.max_tokens > 0, allowed)
        for name, most in (("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)):
            _require(name, most, most is None or 0 <= most <= MOST_LIKELY, f"0 to {MOST_LIKELY}")
        _require("temperature", self.temperature, 0 <= self.temperature < math.inf, "a number of at least 0")
        _require("top_p", self.top_p, 0 < self.top_p <= 1, "above 0, at most 1")
        _require("top_k", self.top_k, self.top_k >= -1, "0 or -1 (all) or more")
        for name in ("frequency_penalty", "presence_penalty"):
            _require(name, getattr(self, name), -2 <= getattr(self, name) <= 2, "-2 to 2")
        for token, bias in self.logit_bias:
            _require("logit_bias", f"{bias} for id {token}", -100 <= bias <= 100, "-100 to 100")
        _require("seed", self.seed, self.seed is None or 0 <= self.seed < 2**128, "0 or more, below 2^128")
        _require("n", self.n, self.n > 0, "above 0")
        _require("stop", len(self.stop), len(self.stop) <= STOP_WORDS, f"at most {STOP_WORDS} texts")
        for word in self.stop:
            _require("stop", repr(word[:40]), 0 < len(word) <= STOP_LENGTH, f"texts of 1 to {STOP_LENGTH} characters")

    @property
    def most_likely(self) -> bool:
        """Whether each token is the most likely one by the model's own logits, unless a grammar excludes it."""
        changed = self.frequency_penalty or self.presence_penalty or self.logit_bias
        return not (self.temperature or changed)

    @property
    def reads_each_token(self) -> bool:
        """Whether the text of each token is wanted before the answer is at its end."""
        return self.stream or bool(self.stop) or self.logprobs is not None

    @property
    def scores_prompt(self) -> int | None:
        """The number of most likely tokens whose log-probabilities the prompt needs; None: it needs none at all."""
        wanted = [self.prompt_logprobs, self.logprobs if self.echo else None]
        return max((most for most in wanted if most is not None), default=None)

    def likelihoods(self, prompt: int, answer: int) -> int:
        """Return how many log-probabilities a prompt and an answer of so many tokens have at most."""
        wanted = ((self.scores_prompt, prompt), (self.logprobs, answer))
        return sum(tokens * (most + 1) for most, tokens in wanted if most is not None)


def read_sampling(directory: Path) -> dict[str, float]:
    """Return the options of sampling that a model's generation_config.json states, for requests that name none.

    Raises:
        UserError: For values that no request could have.
    """
    path = directory / "generation_config.json"
    stated = read_object(path)
    if stated.get("do_sample") is False:
        return {"temperature": 0.0}
    found = {name: stated[name] for name in ("temperature", "top_p", "top_k") if stated.get(name) is not None}
    try:
        Options(**found)
    except (Refusal, TypeError) as error:
        raise UserError(f"{path}: {error}. Correct or remove it.") from None
    return found


def _require(name: str, found: object, fine: bool, allowed: str) -> None:
    if not fine:
        raise Refusal(Reason.INVALID, f"{name}: found {found}, expected {allowed}", name)


@dataclass(frozen=True)
class Likelihood:
    """The likelihood of a token in its place, by the model's logits in float32, before temperature and other options.

    Attributes:
        value: Natural logarithm of its probability; None for the first token of a prompt.
        rank: 1 for the most likely one.
        top: Ids and values of the most likely tokens, in their order; at least as many as the options request.
    """

    token: int
    value: float | None
    rank: int = 0
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class TokenName:
    """A token by itself (launch/serving/token_names.py).

    Attributes:
        bytes: Of its text; None: it has none, or none is known.
    """

    text: str
    bytes: bytes | None


Event = int | Finish | Likelihood | list[Likelihood]


@dataclass(eq=False)
class Row:
    """One prompt on its way through the engine, which calls emit(id) for each token and emit(Finish) once.

    As far as the options request them, emit(list) comes before the first token, with the likelihoods of the prompt's
    tokens, and emit(Likelihood) before each token, also before the end that makes a Finish.

    Attributes:
        group: Rows of the same group can be in one batch.
        number: Index among the answers to its request.
        deadline: As time.monotonic().
        positions: The model's, for prompt and answer.
        grammar: Of an answer in JSON.
        tokens: The answer so far.
        scored: Whether the likelihoods of the prompt's tokens are emitted.
    """

    group: tuple
    prompt: list[int]
    options: Options
    max_tokens: int
    number: int
    deadline: float
    emit: Callable[[Event], None]
    positions: float = math.inf
    grammar: "Grammar | None" = None
    tokens: list[int] = field(default_factory=list)
    scored: bool = False
    done: bool = False

    @property
    def wants_scores(self) -> bool:
        """Whether the likelihoods of the prompt's tokens are still to be emitted."""
        return self.options.scores_prompt is not None and not self.scored

    def emit_scores(self, likelihoods: list[Likelihood]) -> None:
        """Emit the likelihoods of all tokens of the prompt, before the first token of the answer."""
        self.scored = True
        self.emit(likelihoods)

    def put(self, token: int, ends: tuple[int, ...]) -> None:
        """Take the next token; the answer ends with one of the ends, at its largest length or when it is late."""
        if token in ends:
            return self.finish(Finish.STOP)
        self.tokens.append(token)
        if self.grammar:
            self.grammar.take(token)
        self.emit(token)
        if len(self.tokens) == self.max_tokens:
            self.finish(Finish.LENGTH)
        elif time.monotonic() > self.deadline:
            self.finish(Finish.LATE)

    def choose(self, logits: np.ndarray) -> int:
        """Return the next token, by the row's own random numbers where it is drawn.

        Where the row's grammar fails, this row alone is ended, and the token means nothing.

        Args:
            logits: [vocabulary].
        """
        logits = adjusted(logits, self.options, self.tokens)
        if self.grammar and not self.grammar.exclude(logits):
            self.finish(Finish.BEYOND)
        if not self.options.temperature:
            return int(logits.argmax())
        return draw(logits, self.options, random_of(self.options, self.number, len(self.tokens)))

    def finish(self, reason: Finish) -> None:
        """End the row."""
        if not self.done:
            self.done = True
            self.emit(reason)

    def cancel(self) -> None:
        """Take the row out of the queue, or out of its batch with the next token."""
        self.done = True


def random_of(options: Options, number: int, place: int) -> np.random.Generator:
    """Return the random numbers of one token, the same where a failed step is repeated.

    Args:
        number: Index of the answer among the answers to its request.
        place: Of the token in the answer.
        options: With the seed.
    """
    return np.random.default_rng(None if options.seed is None else [options.seed, number, place])


def adjusted(logits: np.ndarray, options: Options, tokens: list[int]) -> np.ndarray:
    """Return logits with biases and penalties.

    Source of the formula: "Frequency and presence penalties" in the OpenAI API's documentation.

    Args:
        logits: [vocabulary].
        tokens: The answer so far, without the prompt.
        options: With the biases.
    """
    logits = logits.astype(np.float64)
    for token, bias in options.logit_bias:
        logits[token] += bias
    if tokens and (options.frequency_penalty or options.presence_penalty):
        ids, counts = np.unique(tokens, return_counts=True)
        logits[ids] -= options.frequency_penalty * counts + options.presence_penalty
    return logits

"""What is asked of a model: as a client asks it, and as the engine answers it, row by row of a batch."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from launch.serving.errors import Reason, Refusal

STOP_WORDS, STOP_LENGTH = 16, 256  # at most, of a request; characters


class Finish(str, Enum):
    """Why an answer ended, in the words of the OpenAI API; FAILED and LATE are errors."""

    STOP = "stop"
    LENGTH = "length"
    FAILED = "failed"
    LATE = "late"


@dataclass(frozen=True)
class Options:
    """How answers are made. Raises Refusal for values that cannot be.

    max_tokens: None: as many as there is room for. temperature 0: always the most likely token. top_k 0 and top_p 1:
    among all. seed: the same seed gives the same answer, in whatever batch; None: another one each time. stop: texts
    that end an answer and are no part of it. n: answers to each prompt.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    n: int = 1

    def __post_init__(self):
        _require("max_tokens", self.max_tokens, self.max_tokens is None or self.max_tokens > 0, "above 0")
        _require("temperature", self.temperature, 0 <= self.temperature < math.inf, "a number of at least 0")
        _require("top_p", self.top_p, 0 < self.top_p <= 1, "above 0, at most 1")
        _require("top_k", self.top_k, self.top_k >= 0, "0 (all) or more")
        _require("seed", self.seed, self.seed is None or self.seed >= 0, "0 or more")
        _require("n", self.n, self.n > 0, "above 0")
        _require("stop", len(self.stop), len(self.stop) <= STOP_WORDS, f"at most {STOP_WORDS} texts")
        for word in self.stop:
            _require("stop", repr(word[:40]), 0 < len(word) <= STOP_LENGTH, f"texts of 1 to {STOP_LENGTH} characters")


def _require(name: str, found: object, fine: bool, allowed: str) -> None:
    if not fine:
        raise Refusal(Reason.INVALID, f"{name}: found {found}, expected {allowed}", name)


@dataclass(eq=False)
class Row:
    """One prompt on its way through the engine, which calls emit(id) for each token and emit(Finish) once.

    group: rows of the same group can be in one batch. number: among the answers of its request. deadline: of
    time.monotonic(). positions: that the model has for prompt and answer. tokens: of the answer so far. random: the
    generator of its draws, from the first one on.
    """

    group: tuple
    prompt: list[int]
    options: Options
    max_tokens: int
    number: int
    deadline: float
    emit: Callable[[int | Finish], None]
    positions: float = math.inf
    tokens: list[int] = field(default_factory=list)
    random: np.random.Generator | None = None
    done: bool = False

    def put(self, token: int, eos: int) -> None:
        """Take the next token; the answer ends with eos, at its largest length or when it is late."""
        if token == eos:
            return self.finish(Finish.STOP)
        self.tokens.append(token)
        self.emit(token)
        if len(self.tokens) == self.max_tokens:
            self.finish(Finish.LENGTH)
        elif time.monotonic() > self.deadline:
            self.finish(Finish.LATE)

    def finish(self, reason: Finish) -> None:
        if not self.done:
            self.done = True
            self.emit(reason)

    def cancel(self) -> None:
        """Nobody waits for this row any more: it leaves the queue, or its batch with the next token."""
        self.done = True

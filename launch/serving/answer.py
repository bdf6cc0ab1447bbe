"""The answers to one request while they are made: tokens from the engine's thread to text in the event loop."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial

from launch.serving.batching.request import Finish, Options, Row
from launch.serving.errors import Reason, Refusal
from launch.serving.text import Decoder, StopWords

FAULTS = {
    Finish.FAILED: (Reason.FAILED, "the batch of this request failed; the server's terminal says why"),
    Finish.LATE: (Reason.LATE, "not answered within --request_timeout"),
}


@dataclass(frozen=True)
class Piece:
    """Some text of the answer with this number among those of a request; finish: at its end."""

    number: int
    text: str
    finish: Finish | None = None


class Answer:
    """Made within a running event loop. Use it up by pieces(), or cancel() it."""

    def __init__(self, served, prompts: list[list[int]], lengths: list[int], options: Options, deadline: float):
        self.prompt_tokens = sum(map(len, prompts))
        self.completion_tokens = 0
        self.deadline = deadline
        self.on_end: Callable[[Answer, str], None] = lambda answer, outcome: None
        self.loop = asyncio.get_running_loop()
        self.events: asyncio.Queue[tuple[int, int | Finish]] = asyncio.Queue()
        self.decoders = [Decoder(served.decode) for _ in prompts]
        self.stops = [StopWords(options.stop) for _ in prompts]
        self.rows = [
            Row(
                served.group(prompt),
                prompt,
                options,
                length,
                number,
                deadline,
                partial(self._take, number),
                served.positions,
            )
            for number, (prompt, length) in enumerate(zip(prompts, lengths, strict=True))
        ]

    async def pieces(self) -> AsyncIterator[Piece]:
        """Raises Refusal where the engine fails or time runs out."""
        ended = 0
        outcome = "cancelled"
        try:
            while ended < len(self.rows):
                number, event = await self._next()
                piece = self._piece(number, event)
                if piece:
                    ended += piece.finish is not None
                    outcome = "answered" if ended == len(self.rows) else outcome
                    yield piece
        except Refusal as refusal:
            outcome = refusal.reason.name.lower()
            raise
        finally:
            self.cancel()
            self.on_end(self, outcome)

    async def _next(self) -> tuple[int, int | Finish]:
        """Not by asyncio.wait_for, which up to Python 3.11 forgets that it was cancelled where an event comes at the
        same moment: the answer to a client that has left would be made to its end. Raises Refusal when time runs
        out."""
        event = asyncio.ensure_future(self.events.get())
        try:
            await asyncio.wait({event}, timeout=max(self.deadline - time.monotonic(), 0))
        finally:
            event.cancel()  # changes nothing where it is there
        if event.cancelled() or not event.done():
            raise _refusal(Finish.LATE)
        return event.result()

    def cancel(self) -> None:
        """Free the places that these answers have in the queue and in their batches."""
        for row in self.rows:
            row.cancel()

    def _take(self, number: int, event: int | Finish) -> None:
        """Called by the engine's thread."""
        self.loop.call_soon_threadsafe(self.events.put_nowait, (number, event))

    def _piece(self, number: int, event: int | Finish) -> Piece | None:
        decoder, stop = self.decoders[number], self.stops[number]
        if stop.found:  # tokens that were on their way
            return None
        if event in FAULTS:
            raise _refusal(event)
        if isinstance(event, Finish):
            text = stop.put(decoder.rest())
            return Piece(number, text + stop.rest(), Finish.STOP if stop.found else event)
        self.completion_tokens += 1
        text = stop.put(decoder.put(event))
        if stop.found:
            self.rows[number].cancel()
            return Piece(number, text, Finish.STOP)
        return Piece(number, text) if text else None


def _refusal(finish: Finish) -> Refusal:
    return Refusal(*FAULTS[finish])

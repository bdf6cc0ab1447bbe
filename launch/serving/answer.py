"""The answers to one request while they are made: from tokens of the engine's thread to text in the event loop.

Text has whole characters only, and nothing of a stop word.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from data_tools.dialogues.messages import ToolCall
from launch.generation.answer_parts import PLAIN, AnswerReader, Reading, Said
from launch.generation.text import UNFINISHED, overlap
from launch.serving.request import Event, Finish, Likelihood, Options, Reason, Refusal, Row

T = TypeVar("T")
PATIENCE = 8  # ids that may come without a whole character; one has 4 bytes at most
UNCERTAIN = 3  # signs for bytes that lack those behind them, at most


class Decoder:
    """Decodes ids as they come.

    Each id costs the same however long the answer is: only the ids since the last piece but one are decoded again, and
    the text of the last piece is left out. Many ids without a whole character, as bytes that are none, and many without
    any text, as special tokens, are not decoded again, either.
    """

    def __init__(self, decode: Callable[[list[int]], str]):
        self.decode = decode
        self.ids: list[int] = []
        self.start = 0  # of the ids that are decoded again
        self.end = 0  # of the ids whose text has been returned
        self.held = 0  # of their last characters, so many have not been returned
        self.characters = 0  # that have been returned

    def copy(self) -> "Decoder":
        """Return a decoder that continues from here by itself."""
        other = Decoder(self.decode)
        other.ids, other.end = self.ids[self.start :], self.end - self.start
        other.held, other.characters = self.held, self.characters
        return other

    def put(self, token: int) -> str:
        """Return the text that this id completes; empty where a character lacks its last bytes."""
        self.ids.append(token)
        return self._more(whole=True)

    def take(self, token: int) -> None:
        """Take an id whose text will be returned by rest()."""
        self.ids.append(token)

    def rest(self) -> str:
        """Return the text that has not been returned, with what no further id will complete."""
        return self._more(whole=False)

    def _more(self, whole: bool) -> str:
        known = self.decode(self.ids[self.start : self.end])
        text = self.decode(self.ids[self.start :])
        returned, held = len(known) - self.held, 0
        if whole and (text.endswith(UNFINISHED) or len(text) <= returned):
            if len(self.ids) - self.end <= PATIENCE:
                return ""
            if len(text) <= returned or text == known:  # the new ids have no text
                del self.ids[self.end : -1]
                return ""
            held = min(UNCERTAIN, _unfinished(text), _unfinished(self.decode(self.ids[self.end :])))
        self.start, self.end, self.held = self.end, len(self.ids), held
        piece = text[returned : len(text) - held]
        self.characters += len(piece)
        return piece


def _unfinished(text: str) -> int:
    """Return how many signs for a part of a character the text ends with."""
    return len(text) - len(text.rstrip(UNFINISHED))


class Echo:
    """A prompt as it stands before its answer.

    Attributes:
        text: As it was given, or decoded from its ids.
        offsets: Of its ids in the text, in characters.
        decoder: An answer continues with a copy of it.
    """

    def __init__(self, decode: Callable[[list[int]], str], given: str | list[int], ids: list[int]):
        self.decoder = Decoder(decode)
        self.offsets, pieces = [], []
        for token in ids:
            self.offsets.append(self.decoder.characters)
            pieces.append(self.decoder.put(token))
        self.text = given if isinstance(given, str) else "".join(pieces)
        self.decoder.characters = len(self.text)


class StopWords:
    """Text up to the first stop word. What may be the beginning of a stop word is kept back until this is known."""

    def __init__(self, words: tuple[str, ...]):
        self.words = words
        self.kept = ""
        self.found = False

    def put(self, text: str) -> str:
        """Return the text that can be shown now."""
        text = self.kept + text
        places = [place for word in self.words if (place := text.find(word)) >= 0]
        if places:
            self.found, self.kept = True, ""
            return text[: min(places)]
        shown = len(text) - max((overlap(text, word) for word in self.words), default=0)
        self.kept = text[shown:]
        return text[:shown]

    def rest(self) -> str:
        """Return the text that was held back, at the end of an answer."""
        kept, self.kept = self.kept, ""
        return kept


FAULTS = {
    Finish.FAILED: (Reason.FAILED, "the batch of this request failed; the server's terminal says why"),
    Finish.BEYOND: (Reason.INVALID, "the schema asks for more than llguidance's limits allow; take a smaller one"),
    Finish.LATE: (Reason.LATE, "not answered within --request_timeout"),
}


@dataclass(frozen=True)
class PlacedLikelihood:
    """A token's likelihood, and the offset of its text behind the beginning of the reply's text, in characters."""

    likelihood: Likelihood
    offset: int


@dataclass(frozen=True)
class AnswerPiece:
    """Some text of the answer with this number among the answers to a request.

    Attributes:
        finish: At its end.
        likelihoods: Where likelihoods are requested, the likelihoods of the answer's tokens since the last piece.
        prompt: The likelihoods of the prompt, in the first piece.
    """

    number: int
    text: str
    finish: Finish | None = None
    likelihoods: tuple[PlacedLikelihood, ...] = ()
    prompt: tuple[PlacedLikelihood, ...] = ()


def read_piece(reader: AnswerReader, piece: AnswerPiece) -> list[Said | ToolCall]:
    """Return what a piece of an answer's stream adds to what its reader has found."""
    return [*reader.put(piece.text), *(reader.rest() if piece.finish else [])]


def call_id() -> str:
    """Return an id for a call: 9 letters and digits, which Mistral's templates require."""
    return uuid.uuid4().hex[:9]


def joined(pieces: list[AnswerPiece]) -> AnswerPiece:
    """Return all pieces of an answer in one."""
    likelihoods = tuple(one for piece in pieces for one in piece.likelihoods)
    prompt = tuple(one for piece in pieces for one in piece.prompt)
    return AnswerPiece(
        pieces[-1].number, "".join(piece.text for piece in pieces), pieces[-1].finish, likelihoods, prompt
    )


class Answer:
    """Made within a running event loop. Use it up by pieces(), or cancel() it.

    Attributes:
        echoes: Of the prompts, where they are wanted; the first text of each answer.
        grammars: Of answers in JSON.
        reading: Of answers that have parts.
    """

    def __init__(
        self,
        served,
        prompts: list[list[int]],
        lengths: list[int],
        options: Options,
        deadline: float,
        echoes: list[Echo] | None = None,
        grammars: Sequence = (),
        reading: Reading = PLAIN,
    ):
        self.options = options
        self.reading = reading
        self.token_name = served.token_name
        self.echoes = echoes
        self.prompt_tokens = sum(map(len, prompts))
        self.completion_tokens = 0
        self.deadline = deadline
        self.on_end: Callable[[Answer, str], None] = lambda answer, outcome: None
        self.loop = asyncio.get_running_loop()
        self.events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        decode = served.decoder(reading)
        self.decoders = [echo.decoder.copy() for echo in echoes] if echoes else [Decoder(decode) for _ in prompts]
        self.likelihoods: list[list[PlacedLikelihood]] = [[] for _ in prompts]  # and not yet part of a piece
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
                grammars[number] if grammars else None,
            )
            for number, (prompt, length) in enumerate(zip(prompts, lengths, strict=True))
        ]

    async def pieces(self) -> AsyncIterator[AnswerPiece]:
        """Yield the pieces of all answers.

        Raises:
            Refusal: If the engine fails or time runs out.
        """
        ended = 0
        outcome = "cancelled"
        try:
            if self.echoes and self.options.scores_prompt is None:
                for number, echo in enumerate(self.echoes):
                    yield AnswerPiece(number, echo.text)
            while ended < len(self.rows):
                number, event = await before(self.deadline, self.events.get())
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

    def cancel(self) -> None:
        """Free the places that these answers have in the queue and in their batches."""
        for row in self.rows:
            row.cancel()

    def _take(self, number: int, event: Event) -> None:
        """Take an event in the engine's thread, from which decoding and the event loop would take time."""
        if isinstance(event, int) and not self.options.reads_each_token:
            self.completion_tokens += 1
            self.decoders[number].take(event)
            return
        self.loop.call_soon_threadsafe(self.events.put_nowait, (number, event))

    def _piece(self, number: int, event: Event) -> AnswerPiece | None:
        decoder, stop = self.decoders[number], self.stops[number]
        if stop.found:  # tokens that were on their way
            return None
        if isinstance(event, list):
            return self._prompt(number, event)
        if isinstance(event, Likelihood):
            self.likelihoods[number].append(PlacedLikelihood(event, decoder.characters))
            return None
        if isinstance(event, Finish):
            if event in FAULTS:
                raise _refusal(event)
            text = stop.put(decoder.rest())
            return self._with_likelihoods(AnswerPiece(number, text + stop.rest(), Finish.STOP if stop.found else event))
        self.completion_tokens += 1
        text = stop.put(decoder.put(event))
        if stop.found:
            self.rows[number].cancel()
            return self._with_likelihoods(AnswerPiece(number, text, Finish.STOP))
        return self._with_likelihoods(AnswerPiece(number, text)) if text else None

    def _with_likelihoods(self, piece: AnswerPiece) -> AnswerPiece:
        likelihoods, self.likelihoods[piece.number] = self.likelihoods[piece.number], []
        return replace(piece, likelihoods=tuple(likelihoods))

    def _prompt(self, number: int, likelihoods: list[Likelihood]) -> AnswerPiece:
        echo = self.echoes[number] if self.echoes else None
        offsets = echo.offsets if echo else [0] * len(likelihoods)
        placed = tuple(PlacedLikelihood(one, offset) for one, offset in zip(likelihoods, offsets, strict=True))
        return AnswerPiece(number, echo.text if echo else "", prompt=placed)


async def before(deadline: float, wanted: Awaitable[T]) -> T:
    """Return the awaited result. deadline: as time.monotonic().

    asyncio.wait_for loses, up to Python 3.11, a cancellation that arrives together with an event: the answer to a
    client that has left would be generated to its end.

    Raises:
        Refusal: If time runs out.
    """
    future = asyncio.ensure_future(wanted)
    try:
        await asyncio.wait({future}, timeout=max(deadline - time.monotonic(), 0))
    finally:
        future.cancel()  # changes nothing where it is there
    if future.cancelled() or not future.done():
        raise _refusal(Finish.LATE)
    return future.result()


def _refusal(finish: Finish) -> Refusal:
    return Refusal(*FAULTS[finish])

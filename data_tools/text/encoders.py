"""Tokenizer directories as one interface: a sentencepiece model, or a tokenizer.json of Hugging Face's tokenizers.

Both encode lists of texts in native code, one thread a call, with nothing added: no bos, no eos. The ids are those of
the library that the directory is made for. So a text that spells a special token ("<s>", "<|endoftext|>") is text for
sentencepiece, and the special token for tokenizer.json.
"""

import hashlib
import itertools
import os
import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from shlex import quote

import numpy as np
import sentencepiece

from data_tools.formats.errors import DataError
from data_tools.formats.json_files import read_object, shown

SENTENCEPIECE_NAMES = (
    "sentencepiece.bpe.model",  # paddlenlp's name for LLaMA's, whatever the kind of model
    "tokenizer.model",  # LLaMA's own and Hugging Face's name
    "spiece.model",  # T5, ALBERT
)
JSON_NAME = "tokenizer.json"
CONFIG_NAME = "tokenizer_config.json"
ADDED_NAME = "added_tokens.json"
# A key of tokenizer_config.json that we add: added_tokens_decoder as published, which paddlenlp does not keep.
PUBLISHED_TOKENS = "published_added_tokens"
# Behind a sentencepiece model, of which the last value of a field counts: normalizer_spec.add_dummy_prefix is false.
NO_DUMMY_PREFIX = b"\x1a\x02\x18\x00"
# Runs that a pattern is tried on. Digits are not among them: to split them by threes from behind takes their square.
RUNS = ("The harbor has boats; it is late. ", "a", "A", " ", "\n", "-", "\u6c49")
SLOW_SECONDS = 1e-5  # of processor time a character
TRIES = 3  # of which the fastest counts: a machine can stop for a while
PLACED = " x  \u6c49\n \U0001f99c x"  # spaces, and characters of several bytes
# What byte-level tokenizers write for each byte.
PRINTED = [*range(33, 127), *range(161, 173), *range(174, 256)]
LETTERS = {chr(byte): byte for byte in PRINTED}
LETTERS |= {chr(256 + number): byte for number, byte in enumerate(sorted({*range(256)} - {*PRINTED}))}
NO_BYTE = 255  # of no text
# Ids of a text, how many of them begin before each border in the text, and how many end by it.
Located = tuple[list[int], list[int], list[int]]
NO_TEXT = "\udcff"  # a byte that no text has
SPACE = "\u2581"  # what sentencepiece, and some tokenizer.json, write for a space


class SentencePieceEncoder:
    """A sentencepiece model.

    Attributes:
        vocab_size: Ids are below it.
        eos_id: None where the model has none.
    """

    def __init__(self, path: Path):
        self.path = path
        self._model = load_sentencepiece(path)
        self.vocab_size = self._model.get_piece_size()
        self.eos_id = self._model.eos_id() if self._model.eos_id() >= 0 else None
        config = read_object(path.parent / CONFIG_NAME)
        numbers = range(self.vocab_size)
        pieces = [number for number in numbers if self._model.is_control(number) or self._model.is_unknown(number)]
        self._special = {self._model.id_to_piece(number): number for number in pieces} | _added_tokens(path.parent)
        named = config.get(PUBLISHED_TOKENS) or config.get("added_tokens_decoder") or {}
        try:
            self._special |= {token["content"]: int(number) for number, token in named.items()}
        except (AttributeError, KeyError, TypeError, ValueError):
            raise DataError(
                f"{path.parent / CONFIG_NAME}: added_tokens_decoder: found {shown(named)}, expected the content of a "
                "token for each id. Copy the file again."
            ) from None
        self._splits = re.compile(_pattern(self._special, [*named.values()]))
        # transformers' rule: of its old form, which LLaMA's makers have, each text between special tokens begins with a
        # space of its own; of the newer one only the text as a whole.
        self._each_begins = config.get("legacy", True)
        self._begins = self._model.normalize("x") == f"{SPACE}x"  # a space before a text

    @cached_property
    def _bare(self) -> sentencepiece.SentencePieceProcessor:
        """The model without the space that it puts before a text."""
        return sentencepiece.SentencePieceProcessor(model_proto=self.path.read_bytes() + NO_DUMMY_PREFIX)

    @cached_property
    def _surfaces(self) -> list[str]:
        """The text of each piece; of a byte of a longer character, and of what has no text, half a surrogate pair."""
        found = []
        for number in range(self.vocab_size):
            piece = self._model.id_to_piece(number)
            if self._model.is_byte(number):
                found.append(bytes([int(piece[3:-1], 16)]).decode("ascii", "surrogateescape"))
            else:
                none = self._model.is_control(number) or self._model.is_unknown(number)
                found.append(NO_TEXT if none else piece.replace(SPACE, " "))
        return found

    def encode(self, texts: list[str]) -> list[np.ndarray]:
        """Return int32 ids of each text."""
        return self._model.encode(texts, out_type="numpy", num_threads=1)

    def decode(self, ids: list[list[int]]) -> list[str]:
        """Return the text of each list of ids."""
        return self._model.decode(ids)

    def encode_chat(self, text: str) -> list[int]:
        """Return the ids of a text in which special tokens are spelt, as transformers' tokenizers make them."""
        ids = []
        for _, part, special, model in self._parts(text):
            ids += [special] if model is None else model.encode(part)
        return ids

    def locate_chat(self, text: str, borders: list[int]) -> Located:
        """Return the ids of `encode_chat`, and where borders between characters of the text lie among them."""
        ids, starts, stops = [], [], []
        for start, part, special, model in self._parts(text):
            if model is None:
                ids.append(special)
                starts.append(start)
                stops.append(start + len(part))
                continue
            encoded = model.encode(part)
            surfaces = [self._surfaces[number] for number in encoded]
            if surfaces and model is self._model and self._begins:
                surfaces[0] = surfaces[0].removeprefix(" ")
            if lengths := _lengths(surfaces, part):
                places = list(accumulate(lengths, initial=start))
                starts += places[:-1]
                stops += places[1:]
            else:  # the model has normalized the text; this takes twice as long
                found = model.encode(part, return_type="offset_mapping")["offsets"]
                starts += [start + first for first, _ in found]
                stops += [start + last for _, last in found]
            ids += encoded
        return ids, *_among(starts, stops, borders)

    def _parts(self, text: str) -> Iterator[tuple[int, str, int | None, sentencepiece.SentencePieceProcessor | None]]:
        """Yield (place, text, its id where it is a special token, else what encodes it) of each part."""
        place = 0
        for part in self._splits.split(text):
            special = self._special.get(part.strip() if part not in self._special else part)
            if special is not None:
                yield place, part, special, None
            elif part:
                begins = self._each_begins or (place == 0 and not part.startswith(" "))
                yield place, part, None, self._model if begins else self._bare
            place += len(part)

    def decode_chat(self, ids: list[int]) -> str:
        """Return the text of ids, special tokens included."""
        spelt = {number: token for token, number in self._special.items()}
        model = self._model if self._each_begins else self._bare
        parts = []
        for special, run in itertools.groupby(ids, key=spelt.__contains__):
            parts += [spelt[token] for token in run] if special else [model.decode(list(run))]  # noqa: B031
        return "".join(parts)

    def as_decoded(self, text: str) -> str:
        """Return the text that decoding the ids of a text gives."""
        return _without_prefix(self._model.normalize, text).replace(SPACE, " ")


class JsonEncoder:
    """A tokenizer.json; eos comes from tokenizer_config.json beside it."""

    def __init__(self, path: Path):
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # one thread: processes share the work
        from tokenizers import Tokenizer

        self.path = path
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises no narrower class
            raise DataError(f"{path} is no tokenizer: {error}. Copy it again.") from None
        require_quick(self._tokenizer, path)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._chats = LocatingTokenizer(self._tokenizer)
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values()) + 1  # the ids may have gaps
        self._keeps_space_sign = self.decode([self.encode([SPACE])[0].tolist()]) == [SPACE]
        eos = read_object(path.parent / CONFIG_NAME).get("eos_token")
        eos = eos.get("content") if isinstance(eos, dict) else eos
        self.eos_id = self._tokenizer.token_to_id(eos if isinstance(eos, str) else "")

    def encode(self, texts: list[str]) -> list[np.ndarray]:
        """Return int32 ids of each text."""
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]

    def decode(self, ids: list[list[int]]) -> list[str]:
        """Return the text of each list of ids."""
        return self._tokenizer.decode_batch(ids, skip_special_tokens=False)

    def encode_chat(self, text: str) -> list[int]:
        """Return the ids of a text in which special tokens are spelt."""
        return self._chats.encode(text)

    def locate_chat(self, text: str, borders: list[int]) -> Located:
        """Return the ids of `encode_chat`, and where borders between characters of the text lie among them."""
        return self._chats.locate(text, borders)

    def decode_chat(self, ids: list[int]) -> str:
        """Return the text of ids, special tokens included."""
        return self.decode([ids])[0]

    def as_decoded(self, text: str) -> str:
        """Return the text that decoding the ids of a text gives."""
        normalizer = self._tokenizer.normalizer
        text = _without_prefix(normalizer.normalize_str, text) if normalizer else text
        return text if self._keeps_space_sign else text.replace(SPACE, " ")


class LocatingTokenizer:
    """One of Hugging Face's tokenizers, for dialogues."""

    def __init__(self, tokenizer):
        self._tokenizer, self._bytes = tokenizer, _TokenBytes(tokenizer)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text in which special tokens are spelt."""
        [found] = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        return found.ids

    def locate(self, text: str, borders: list[int]) -> Located:
        """Return the ids of `encode`, and where borders between characters of the text lie among them."""
        return (self._spells and self._by_bytes(text, borders)) or self._by_offsets(text, borders)

    def _by_offsets(self, text: str, borders: list[int]) -> Located:
        found = self._tokenizer.encode(text, add_special_tokens=False)
        places = found.offsets  # copied at each access
        return found.ids, *_among([start for start, _ in places], [stop for _, stop in places], borders)

    def _by_bytes(self, text: str, borders: list[int]) -> Located | None:
        """Return the same, in two thirds of the time; None where the bytes of the tokens are not those of the text."""
        ids = self.encode(text)
        tokens = [*map(self._bytes.__getitem__, ids)]
        if b"".join(tokens) != text.encode():
            return None
        if not text.isascii():
            borders = [len(text[:border].encode()) for border in borders]
        places = [*accumulate(map(len, tokens), initial=0)]  # one token begins where the one before it ends
        begun = [bisect_left(places, border, 0, len(ids)) for border in borders]
        return ids, begun, [bisect_right(places, border, 1) - 1 for border in borders]

    @cached_property
    def _spells(self) -> bool:
        """Whether the library places tokens where their bytes are: by some tokenizers it leaves out spaces."""
        borders = [*range(len(PLACED) + 1)]
        return self._by_bytes(PLACED, borders) == self._by_offsets(PLACED, borders)


class _TokenBytes(dict[int, bytes]):
    """The bytes of each token of a byte-level tokenizer, by its id."""

    def __init__(self, tokenizer):
        added = tokenizer.get_added_tokens_decoder()
        super().__init__({number: token.content.encode() for number, token in added.items()})
        self._tokenizer = tokenizer

    def __missing__(self, number: int) -> bytes:
        found = self[number] = bytes(LETTERS.get(one, NO_BYTE) for one in self._tokenizer.id_to_token(number))
        return found


def _among(starts: list[int], stops: list[int], borders: list[int]) -> tuple[list[int], list[int]]:
    """Return how many tokens begin before each border, and how many end by it."""
    return [bisect_left(starts, border) for border in borders], [bisect_right(stops, border) for border in borders]


def require_quick(tokenizer, source: str | Path) -> None:
    """Check that the patterns of one of Hugging Face's tokenizers take a time that grows with a text, no faster.

    A pattern that tries all ways to divide a run of characters would take hours for one long document or request, and
    nothing can stop it. Published ones take 0.3 microseconds a character or less.

    Raises:
        DataError: For one that takes 10 in a text of 4,096 characters, or that the library gives up.
    """
    normalizer, splitter = tokenizer.normalizer, tokenizer.pre_tokenizer
    steps = [*([normalizer.normalize_str] if normalizer else []), *([splitter.pre_tokenize_str] if splitter else [])]
    for step, part, length in itertools.product(steps, RUNS, (256, 512, 1024, 2048, 4096)):
        text = (part * length)[:length]
        if not any(_is_quick(step, text) for _ in range(TRIES)):
            raise DataError(
                f"{source}: a pattern by which it splits or normalizes texts takes too long, such as for {length:,} "
                f"characters of {text[:20]!r}. Take the tokenizer from its makers."
            )


def _is_quick(step: Callable[[str], object], text: str) -> bool:
    start = time.thread_time()
    try:
        step(text)
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return False
    return time.thread_time() - start <= SLOW_SECONDS * 4096


def _lengths(surfaces: list[str], text: str) -> list[int] | None:
    """Return how many characters of a text each piece stands for; None where the pieces do not spell it.

    Of the bytes of a character the last one stands for it.
    """
    spelt = "".join(surfaces)
    if spelt == text:
        return [*map(len, surfaces)]
    if spelt.encode("utf-8", "surrogateescape").decode("utf-8", "replace") != text:
        return None
    following = [*surfaces[1:], ""]
    return [
        len(one) - ("\udc80" <= one <= "\udcff" and "\udc80" <= after <= "\udcbf")
        for one, after in zip(surfaces, following, strict=True)
    ]


def load_encoder(directory: str | Path) -> SentencePieceEncoder | JsonEncoder:
    """Return the tokenizer of a directory; of both kinds of file, paddlenlp's, else tokenizer.json, as import does.

    Raises:
        DataError: If there is none, or it is damaged.
    """
    for name in (SENTENCEPIECE_NAMES[0], JSON_NAME, *SENTENCEPIECE_NAMES[1:]):
        if Path(directory, name).is_file():
            return (JsonEncoder if name == JSON_NAME else SentencePieceEncoder)(Path(directory, name))
    raise DataError(
        f"{directory} has no tokenizer: looked for {', '.join(SENTENCEPIECE_NAMES)} and {JSON_NAME}. Train one with "
        f"`.venv/bin/python -m data_tools.tokenizer --input FILES --output {quote(str(directory))} "
        "--vocab_size 32000`."
    )


def is_tiktoken(path: Path) -> bool:
    """Return whether a tokenizer.model is tiktoken's: lines of a token in base64 and its rank."""
    with open(path, "rb") as file:
        return bool(re.fullmatch(rb"[A-Za-z0-9+/]+=* \d+\r?\n?", file.readline(4096)))


def load_sentencepiece(path: Path) -> sentencepiece.SentencePieceProcessor:
    """Return a sentencepiece model file.

    Raises:
        DataError: If it is damaged.
    """
    if is_tiktoken(path):
        raise DataError(
            f"{path} is a file of tiktoken, no sentencepiece model. Put the tokenizer.json of the model's Hugging Face "
            "form beside it."
        )
    try:
        model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        model.id_to_piece([*range(len(model))])  # each is text
        return model
    except (RuntimeError, OSError, UnicodeDecodeError):
        raise DataError(f"{path} is not a sentencepiece model, or is damaged. Copy or train it again.") from None


def fingerprint(encoder: SentencePieceEncoder | JsonEncoder) -> str:
    """Return the SHA-256 of the file that decides the ids."""
    return hashlib.sha256(encoder.path.read_bytes()).hexdigest()


def _without_prefix(normalize: Callable[[str], str], text: str) -> str:
    """Return a normalized text without the space that some tokenizers put in front and take away in decoding."""
    put_in_front = len(normalize("x")) - 1
    return normalize(text)[put_in_front:]


def _pattern(special: dict[str, int], named: list[dict]) -> str:
    """Return the pattern of special tokens, the longest first, with the space around them that some take in."""
    strips = {token["content"]: (token.get("lstrip"), token.get("rstrip")) for token in named}
    parts = []
    for token in sorted(special, key=len, reverse=True):
        left, right = (r"\s*" if strip else "" for strip in strips.get(token, (False, False)))
        parts.append(left + re.escape(token) + right)
    return f"({'|'.join(parts)})" if parts else "(?!)"


def _added_tokens(directory: Path) -> dict[str, int]:
    """Return tokens beyond the pieces, and their ids."""
    added = read_object(directory / ADDED_NAME)
    if not all(isinstance(number, int) for number in added.values()):
        raise DataError(f"{directory / ADDED_NAME}: expected tokens and their ids. Copy the file again.")
    return added

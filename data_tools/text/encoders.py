"""Tokenizer directories as one interface: a sentencepiece model, or a tokenizer.json of Hugging Face's tokenizers.

Both encode lists of texts in native code, one thread a call, with nothing added: no bos, no eos. The ids are those of
the library that the directory is made for. So a text that spells a special token ("<s>", "<|endoftext|>") is text for
sentencepiece, and the special token for tokenizer.json.
"""

import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterator
from functools import cached_property
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

    @cached_property
    def _bare(self) -> sentencepiece.SentencePieceProcessor:
        """The model without the space that it puts before a text."""
        return sentencepiece.SentencePieceProcessor(model_proto=self.path.read_bytes() + NO_DUMMY_PREFIX)

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

    def locate_chat(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of `encode_chat`, and (first character, one behind the last) of each."""
        ids, places = [], []
        for start, part, special, model in self._parts(text):
            if model is None:
                ids.append(special)
                places.append((start, start + len(part)))
                continue
            found = model.encode(part, return_type="offset_mapping")
            ids += found["ids"]
            places += [(start + first, start + last) for first, last in found["offsets"]]
        return ids, places

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
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values()) + 1  # the ids may have gaps
        self._keeps_space_sign = self.decode([self.encode([SPACE])[0].tolist()]) == [SPACE]
        self.eos_id = self._tokenizer.token_to_id(_eos_token(path.parent) or "")

    def encode(self, texts: list[str]) -> list[np.ndarray]:
        """Return int32 ids of each text."""
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]

    def decode(self, ids: list[list[int]]) -> list[str]:
        """Return the text of each list of ids."""
        return self._tokenizer.decode_batch(ids, skip_special_tokens=False)

    def encode_chat(self, text: str) -> list[int]:
        """Return the ids of a text in which special tokens are spelt."""
        return self.encode([text])[0].tolist()

    def locate_chat(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of `encode_chat`, and (first character, one behind the last) of each."""
        found = self._tokenizer.encode(text, add_special_tokens=False)
        return found.ids, found.offsets

    def decode_chat(self, ids: list[int]) -> str:
        """Return the text of ids, special tokens included."""
        return self.decode([ids])[0]

    def as_decoded(self, text: str) -> str:
        """Return the text that decoding the ids of a text gives."""
        normalizer = self._tokenizer.normalizer
        text = _without_prefix(normalizer.normalize_str, text) if normalizer else text
        return text if self._keeps_space_sign else text.replace(SPACE, " ")


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


def load_sentencepiece(path: Path) -> sentencepiece.SentencePieceProcessor:
    """Return a sentencepiece model file.

    Raises:
        DataError: If it is damaged.
    """
    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (RuntimeError, OSError):
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


def _eos_token(directory: Path) -> str | None:
    token = read_object(directory / CONFIG_NAME).get("eos_token")
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else None

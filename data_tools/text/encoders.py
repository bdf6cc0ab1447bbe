"""Tokenizer directories as one interface: a sentencepiece model, or a tokenizer.json of Hugging Face's tokenizers.

Both encode lists of texts in native code, one thread a call, with nothing added: no bos, no eos. The ids are those of
the library that the directory is made for. So a text that spells a special token ("<s>", "<|endoftext|>") is text for
sentencepiece, and the special token for tokenizer.json.
"""

import hashlib
import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path
from shlex import quote

import numpy as np
import sentencepiece

from data_tools.formats.errors import DataError
from data_tools.formats.json_files import read_object

SENTENCEPIECE_NAMES = (
    "sentencepiece.bpe.model",  # paddlenlp's name for LLaMA's, whatever the kind of model
    "tokenizer.model",  # LLaMA's own and Hugging Face's name
    "spiece.model",  # T5, ALBERT
)
JSON_NAME = "tokenizer.json"
CONFIG_NAME = "tokenizer_config.json"
ADDED_NAME = "added_tokens.json"
SPACE = "\u2581"  # what sentencepiece, and some tokenizer.json, write for a space


class SentencePieceEncoder:
    """A sentencepiece model. vocab_size: ids are below it. eos_id: None where the model has none."""

    def __init__(self, path: Path):
        self.path = path
        self._model = load_sentencepiece(path)
        self.vocab_size = self._model.get_piece_size()
        self.eos_id = self._model.eos_id() if self._model.eos_id() >= 0 else None
        pieces = (number for number in range(self.vocab_size) if self._model.is_control(number))
        self._special = {self._model.id_to_piece(number): number for number in pieces} | _added_tokens(path.parent)

    def encode(self, texts: list[str]) -> list[np.ndarray]:
        """int32 ids of each text."""
        return self._model.encode(texts, out_type="numpy", num_threads=1)

    def decode(self, ids: list[list[int]]) -> list[str]:
        """The text of each list of ids."""
        return self._model.decode(ids)

    def encode_chat(self, text: str) -> list[int]:
        """The ids of a text in which special tokens are spelt, as paddlenlp's tokenizers make them."""
        ids = []
        for part in re.split(f"({'|'.join(map(re.escape, self._special))})", text) if self._special else [text]:
            ids += [self._special[part]] if part in self._special else self._model.encode(part)
        return ids

    def decode_chat(self, ids: list[int]) -> str:
        """The text of ids, special tokens included."""
        spelt = {number: token for token, number in self._special.items()}
        parts = []
        for special, run in itertools.groupby(ids, key=spelt.__contains__):
            parts += [spelt[token] for token in run] if special else [self._model.decode(list(run))]  # noqa: B031
        return "".join(parts)

    def as_decoded(self, text: str) -> str:
        """What decoding the ids of a text gives."""
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
        """int32 ids of each text."""
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]

    def decode(self, ids: list[list[int]]) -> list[str]:
        """The text of each list of ids."""
        return self._tokenizer.decode_batch(ids, skip_special_tokens=False)

    def encode_chat(self, text: str) -> list[int]:
        """The ids of a text in which special tokens are spelt."""
        return self.encode([text])[0].tolist()

    def decode_chat(self, ids: list[int]) -> str:
        """The text of ids, special tokens included."""
        return self.decode([ids])[0]

    def as_decoded(self, text: str) -> str:
        """What decoding the ids of a text gives."""
        normalizer = self._tokenizer.normalizer
        text = _without_prefix(normalizer.normalize_str, text) if normalizer else text
        return text if self._keeps_space_sign else text.replace(SPACE, " ")


def load_encoder(directory: str | Path) -> SentencePieceEncoder | JsonEncoder:
    """The tokenizer of a directory; where it has both kinds of file, the sentencepiece model, as paddlenlp does.

    Raises DataError when there is none, or it is damaged.
    """
    for name in SENTENCEPIECE_NAMES:
        if Path(directory, name).is_file():
            return SentencePieceEncoder(Path(directory, name))
    if Path(directory, JSON_NAME).is_file():
        return JsonEncoder(Path(directory, JSON_NAME))
    raise DataError(
        f"{directory} has no tokenizer: looked for {', '.join(SENTENCEPIECE_NAMES)} and {JSON_NAME}. Train one with "
        f"`.venv/bin/python -m data_tools.tokenizer --input FILES --output {quote(str(directory))} "
        "--vocab_size 32000`."
    )


def load_sentencepiece(path: Path) -> sentencepiece.SentencePieceProcessor:
    """A sentencepiece model file. Raises DataError when it is none."""
    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (RuntimeError, OSError):
        raise DataError(f"{path} is not a sentencepiece model, or is damaged. Copy or train it again.") from None


def fingerprint(encoder: SentencePieceEncoder | JsonEncoder) -> str:
    """SHA-256 of the file that decides the ids."""
    return hashlib.sha256(encoder.path.read_bytes()).hexdigest()


def _without_prefix(normalize: Callable[[str], str], text: str) -> str:
    """A normalized text, without the space that some tokenizers put in front and take away in decoding."""
    put_in_front = len(normalize("x")) - 1
    return normalize(text)[put_in_front:]


def _added_tokens(directory: Path) -> dict[str, int]:
    """Tokens beyond the pieces, and their ids."""
    added = read_object(directory / ADDED_NAME)
    if not all(isinstance(number, int) for number in added.values()):
        raise DataError(f"{directory / ADDED_NAME}: expected tokens and their ids. Copy the file again.")
    return added


def _eos_token(directory: Path) -> str | None:
    token = read_object(directory / CONFIG_NAME).get("eos_token")
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else None

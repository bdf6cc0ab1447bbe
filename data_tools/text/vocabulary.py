"""Add pieces to a sentencepiece model, such as Chinese ones to LLaMA's. The ids there were stay what they were.

A model file is a protobuf message, sentencepiece_model.proto's ModelProto, and two such messages one behind the other
are one: repeated fields (the pieces) are joined, single ones (the number of ids) taken from the last. So the new pieces
are appended as bytes, and nothing of the model is written anew.
"""

import struct
from collections.abc import Iterable, Iterator

import sentencepiece

from data_tools.formats.errors import DataError

MODEL_TYPES = {1: "unigram", 2: "bpe"}
# Field numbers of ModelProto, its SentencePiece and its TrainerSpec.
PIECES, TRAINER_SPEC = 1, 2
PIECE, SCORE = 1, 2
MODEL_TYPE, VOCAB_SIZE = 3, 4
VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5  # wire types


def model_type(model: bytes) -> str:
    """Return "unigram" or "bpe".

    Raises:
        DataError: For a model of words or characters.
    """
    code = 1  # the default of the field
    for number, value in fields(model):
        if number == TRAINER_SPEC and isinstance(value, bytes):
            code = dict(fields(value)).get(MODEL_TYPE, code)
    if code not in MODEL_TYPES:
        raise DataError("the model to extend has words or characters for pieces. Give one of kind bpe or unigram.")
    return MODEL_TYPES[code]


def new_pieces(base: bytes, trained: bytes) -> list[tuple[str, float]]:
    """Return (piece, score) of pieces that a model trained on other text has and the base lacks.

    Characters come first, the most frequent at the head: a text in them costs a byte each piece otherwise. Then the
    longer ones in the order the training found them, so that with any number of them each has the parts it is made of.
    """
    known, found = pieces(base), pieces(trained)
    fresh = [(piece, score) for piece, score in found.items() if piece not in known]
    return [piece for piece in fresh if len(piece[0]) == 1] + [piece for piece in fresh if len(piece[0]) > 1]


def pieces(model: bytes) -> dict[str, float]:
    """Return the pieces of text, with their scores, in the order of their ids: no control, unknown or byte pieces."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return {
        processor.id_to_piece(i): processor.get_score(i)
        for i in range(processor.get_piece_size())
        if not (processor.is_control(i) or processor.is_unknown(i) or processor.is_byte(i))
    }


def extend_model(base: bytes, added: list[tuple[str, float]]) -> bytes:
    """Return the base with these pieces behind its own.

    The scores of BPE rank merges: new ones rank behind all earlier ones, so that old text changes as little as
    possible. Scores of unigram are log probabilities and stay.
    """
    if model_type(base) == "bpe":
        lowest = min(pieces(base).values())
        added = [(piece, lowest - 1 - rank) for rank, (piece, _) in enumerate(added)]
    total = sentencepiece.SentencePieceProcessor(model_proto=base).get_piece_size() + len(added)
    appended = [
        _field(PIECES, _field(PIECE, piece.encode()) + _varint(SCORE << 3 | FOUR_BYTES) + struct.pack("<f", score))
        for piece, score in added
    ]
    return base + b"".join(appended) + _field(TRAINER_SPEC, _varint(VOCAB_SIZE << 3 | VARINT) + _varint(total))


def tokens_per_character(model: bytes, texts: Iterable[str]) -> float:
    """Return the mean number of tokens a character in these texts."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    tokens = characters = 0
    for text in texts:
        tokens += len(processor.encode(text))
        characters += len(text)
    return tokens / max(1, characters)


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (number, value) of each field of a protobuf message; values of a fixed width are left as bytes."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        wire_type = key & 7
        if wire_type == VARINT:
            value, at = _read_varint(message, at)
        else:
            if wire_type == LENGTH:
                size, at = _read_varint(message, at)
            else:
                size = {EIGHT_BYTES: 8, FOUR_BYTES: 4}[wire_type]
            value, at = message[at : at + size], at + size
        yield key >> 3, value


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | LENGTH) + _varint(len(content)) + content

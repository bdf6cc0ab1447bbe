"""A tokenizer.json beside an exported sentencepiece model: transformers loads it without the package sentencepiece.

The same pieces in the form of Hugging Face's tokenizers, for BPE with the normalization of LLaMA's: a space in front
or none, nothing else. It is written only where both give the same ids for texts of the model's own pieces and others.
"""

# The stubs of tokenizers have properties without setters.
# pyright: reportAttributeAccessIssue=false

import random
from pathlib import Path

import sentencepiece
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

SPACE = "\u2581"
PROBES = 1000
# Spaces, lines, marks, scripts, a character of no piece: what normalizations change.
OTHERS = (
    *("  two  spaces ", "\tline\r\n\n", "\uff26\uff35\uff2c\uff2c width \ufb01", "nai\u0308ve", "x\u00b2\u00bd"),
    *("\u4e2d\u6587\uff0c\u6c49\u5b57\u3002", "\u65e5\u672c\u8a9e \ud55c\uad6d\uc5b4", "\U0001f99c \U0001f600"),
)


def write_json(model_file: Path, target: Path, added: dict[str, int], each_begins: bool) -> bool:
    """Write `target`, a tokenizer.json of a sentencepiece model, and return True if its ids are the model's.

    Args:
        added: Tokens beyond the pieces, with their ids.
        each_begins: Whether each text behind a special token begins with a space of its own, too (transformers'
            `legacy`).
        model_file: Of sentencepiece.
        target: The file to write.
    """
    model = sentencepiece.SentencePieceProcessor(model_file=str(model_file))
    tokenizer = _convert(model, each_begins)
    for token in sorted(added, key=lambda token: added[token]):
        tokenizer.add_special_tokens([AddedToken(token, normalized=False)])
        if tokenizer.token_to_id(token) != added[token]:
            return False
    if any(tokenizer.encode(text, add_special_tokens=False).ids != model.encode(text) for text in probes(model)):
        return False
    tokenizer.save(str(target))
    return True


def probes(model: sentencepiece.SentencePieceProcessor, count: int = PROBES) -> list[str]:
    """Return texts to compare two tokenizers on: the same for the same model."""
    pieces = [
        model.id_to_piece(number).replace(SPACE, " ") for number in range(len(model)) if _is_normal(model, number)
    ]
    draw = random.Random(0)
    parts = [*pieces, *OTHERS]
    return [*OTHERS, *("".join(draw.choices(parts, k=draw.randint(1, 12))) for _ in range(count - len(OTHERS)))]


def _is_normal(model: sentencepiece.SentencePieceProcessor, number: int) -> bool:
    kinds = (model.is_control, model.is_unknown, model.is_byte, model.is_unused)
    return not any(is_of(number) for is_of in kinds)


def _convert(model: sentencepiece.SentencePieceProcessor, each_begins: bool) -> Tokenizer:
    pieces = {model.id_to_piece(number): number for number in range(len(model))}
    unknown = model.id_to_piece(model.unk_id())
    fallback = any(model.is_byte(number) for number in range(len(model)))
    options = {"unk_token": unknown, "fuse_unk": True, "byte_fallback": fallback}
    bpe = models.BPE(pieces, _merges(model, pieces), **options)
    tokenizer = Tokenizer(bpe)
    begins = model.encode("a", out_type=str)[0].startswith(SPACE)  # each text, with a space
    if begins and not each_begins:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="first", split=False)
    else:
        spaces = [normalizers.Prepend(SPACE)] if begins else []  # pyright: ignore[reportCallIssue]
        tokenizer.normalizer = normalizers.Sequence([*spaces, normalizers.Replace(" ", SPACE)])  # pyright: ignore[reportCallIssue]
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if begins else [])])
    special = [piece for piece, number in pieces.items() if model.is_control(number) or model.is_unknown(number)]
    tokenizer.add_special_tokens([AddedToken(piece, normalized=False) for piece in special])
    return tokenizer


def _merges(model: sentencepiece.SentencePieceProcessor, pieces: dict[str, int]) -> list[tuple[str, str]]:
    """Return every pair of pieces that make a third, the likeliest third first, as sentencepiece merges them."""
    normal = {piece: number for piece, number in pieces.items() if _is_normal(model, number)}
    found = []
    for piece, number in normal.items():
        halves = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        found += [
            (model.get_score(number), left, right) for left, right in halves if left in normal and right in normal
        ]
    found.sort(key=lambda one: (-one[0], normal[one[1]], normal[one[2]]))
    return [(left, right) for _, left, right in found]

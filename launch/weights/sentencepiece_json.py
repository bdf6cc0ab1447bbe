"""A tokenizer.json beside an exported sentencepiece model: transformers loads it without the package sentencepiece.

The same pieces in the form of Hugging Face's tokenizers, by BPE or unigrams, with the model's own normalization. It is
written only where both give the same ids for texts of the model's own pieces and others.
"""

# The stubs of tokenizers have properties without setters.
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

import random
from pathlib import Path

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from data_tools.text.encoders import NO_DUMMY_PREFIX, load_sentencepiece
from data_tools.text.vocabulary import MODEL_TYPE, MODEL_TYPES, TRAINER_SPEC, fields, model_type

SPACE = "\u2581"
# Of sentencepiece_model.proto: ModelProto's normalizer_spec, its precompiled_charsmap and remove_extra_whitespaces.
NORMALIZER_SPEC, CHARACTERS, SPACES_REMOVED = 3, 2, 4
PROBES = 1000
# Spaces, lines, marks, scripts, a character of no piece: what normalizations change.
OTHERS = (
    *("  two  spaces ", "\tline\r\n\n", "\uff26\uff35\uff2c\uff2c width \ufb01", "nai\u0308ve", "x\u00b2\u00bd"),
    *("\u4e2d\u6587\uff0c\u6c49\u5b57\u3002", "\u65e5\u672c\u8a9e \ud55c\uad6d\uc5b4", "\U0001f99c \U0001f600"),
    *("\uff8a\uff9f \u304b\u3099 A\u0301 \u1112\u1161\u11ab", "\u3000\u3000\u4e2d\u6587"),
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
    message = model_file.read_bytes()
    model = load_sentencepiece(model_file)
    if _settings(message, TRAINER_SPEC).get(MODEL_TYPE, 1) not in MODEL_TYPES:
        return False  # words or characters
    tokenizer = _convert(model, message, each_begins)
    for token in sorted(added, key=lambda token: added[token]):
        tokenizer.add_special_tokens([AddedToken(token, normalized=False)])
        if tokenizer.token_to_id(token) != added[token]:
            return False
    bare = sentencepiece.SentencePieceProcessor(model_proto=message + NO_DUMMY_PREFIX)
    for text in probes(model):  # as SentencePieceEncoder.encode_chat
        ids = (model if each_begins or not text.startswith(" ") else bare).encode(text)
        if tokenizer.encode(text, add_special_tokens=False).ids != ids:
            return False
    target.write_text(tokenizer.to_str(pretty=True), encoding="utf-8")  # an error of its own `save` has no type
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


def _settings(message: bytes, spec: int) -> dict:
    """Return the fields of a part of a sentencepiece model, by number."""
    parts = [dict(fields(value)) for number, value in fields(message) if number == spec and isinstance(value, bytes)]
    return {number: value for part in parts for number, value in part.items()}


def _convert(model: sentencepiece.SentencePieceProcessor, message: bytes, each_begins: bool) -> Tokenizer:
    pieces = {model.id_to_piece(number): number for number in range(len(model))}
    fallback = any(model.is_byte(number) for number in range(len(model)))
    if model_type(message) == "unigram":
        scored = [(piece, model.get_score(number)) for piece, number in pieces.items()]
        kind = models.Unigram(scored, model.unk_id(), fallback)
    else:
        options = {"unk_token": model.id_to_piece(model.unk_id()), "fuse_unk": True, "byte_fallback": fallback}
        kind = models.BPE(pieces, _merges(model, pieces), **options)
    tokenizer = Tokenizer(kind)
    rules, normal = _settings(message, NORMALIZER_SPEC), []
    if rules.get(CHARACTERS):
        # The library takes these two as one character, whose first one alone has a rule.
        line_end = model.normalize("x\r\nx").replace(SPACE, " ").strip()[1:-1]
        # It joins no letter and mark of 6 bytes or more, and leaves out the mark of a letter that has a rule alone.
        joined = [normalizers.NFC()] if model.normalize("\u304b\u3099").endswith("\u304c") else []
        normal += [normalizers.Replace("\r\n", line_end), *joined, normalizers.Precompiled(rules[CHARACTERS]), *joined]
    if rules.get(SPACES_REMOVED, 1):
        for pattern, kept in ((r"\A +| +\z", ""), (" {2,}", " ")):
            normal.append(normalizers.Replace(Regex(pattern), kept))
    begins = model.encode("a", out_type=str)[0].startswith(SPACE)  # each text, with a space
    if begins and not each_begins:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="first", split=False)
    else:
        if begins:  # also a text of which the characters' rules leave nothing, but no text of spaces that are removed
            normal.insert(len(normal) if rules.get(SPACES_REMOVED, 1) else 0, normalizers.Prepend(SPACE))
        normal.append(normalizers.Replace(" ", SPACE))
    tokenizer.normalizer = normalizers.Sequence(normal)
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

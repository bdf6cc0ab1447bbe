"""Tokenizers of GGUF files: rebuilt from the metadata, and written into them.

llama.cpp knows byte-level BPE (`gpt2`) with one of several ways to split a text into words, which has a name
(src/llama-vocab.cpp), and sentencepiece's BPE (`llama`). A rebuilt tokenizer has the tokens of the metadata, each at
its place, or is refused.
"""

# The stubs of tokenizers have properties without setters.
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

import json
import random
import struct
import unicodedata
from pathlib import Path

from data_tools.dialogues.chat_template import directory_template
from data_tools.formats.json_files import read_object, shown
from launch.errors import UserError
from launch.families.tokenizer_files import SENTENCEPIECE_FILES, read_tokenizer
from launch.weights.gguf_file import GGUFFile

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
# Of sentencepiece_model.proto: TrainerSpec's model_type, and its fields of each role: the id, the token.
BPE = 2
ROLE_FIELDS = {"unk": (40, 45), "bos": (41, 46), "eos": (42, 47), "pad": (43, 48)}
SPECIAL_ROLES = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}  # ours, theirs
WORDS = r"[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CASELESS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
# Name -> how words are split: by GPT-2's own pattern (None), after digits one by one (DIGITS), or by another pattern.
DIGITS = "digits"
SPLITS = {
    "gpt-2": None,
    "smollm": DIGITS,
    "qwen2": CASELESS + WORDS.format(digits=""),
    "llama-bpe": CASELESS + WORDS.format(digits="{1,3}"),
    "tekken": rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
SAME_SPLIT = {
    **dict.fromkeys(("llama3", "llama-v3", "falcon3", "smaug-bpe"), "llama-bpe"),
    **dict.fromkeys(("mpt", "olmo", "jais"), "gpt-2"),
    **dict.fromkeys(("starcoder", "refact", "command-r", "codeshell"), "smollm"),
    **dict.fromkeys(("deepseek-r1-qwen", "stablelm2", "megrez"), "qwen2"),
}
WHOLE_WORDS = ("llama-bpe", "tekken")  # a word that is a token needs no merges
BEGIN = ("llama-bpe", "tekken")  # with the token of the beginning, where the metadata state nothing
PROBED = 300  # texts of tokens in a row
# Digits, contractions in both cases, spaces, lines, scripts: where the splits differ.
PROBES = (
    *("in 12345 of 2024-11-27, 3.14", "It's HE'S we'll THEY'RE", "  two  spaces\n\n  lines \t\r\n", "x = y/2 //!!\n/"),
    *("Größe naïve ΑΒΓ кот", "中文，汉字。１２３", "日本語 한국어", "🦜 😀", "camelCaseWord HTTPServer", "١٢٣ ½ ²"),
)


def write_tokenizer(file: GGUFFile, directory: Path) -> None:
    """Write the tokenizer's files as a Hugging Face directory has them. Raises UserError where that cannot be."""
    tokens, kinds = _tokens(file)
    model = file.metadata.get("tokenizer.ggml.model")
    named = {role: file.metadata.get(f"tokenizer.ggml.{key}_token_id") for role, key in SPECIAL_ROLES.items()}
    special = {role: tokens[number] for role, number in named.items() if number is not None and _is_id(number, tokens)}
    if model == "gpt2":
        adds = file.metadata.get("tokenizer.ggml.add_bos_token", _split_name(file) in BEGIN)
        begins = bool(adds) and special.get("bos")
        made = _bpe(file, tokens, kinds, begins or None)
        (directory / "tokenizer.json").write_text(made.to_str(pretty=True), encoding="utf-8")
    elif model == "llama":
        begins = file.metadata.get("tokenizer.ggml.add_bos_token", True)
        (directory / "tokenizer.model").write_bytes(_sentencepiece(file, tokens, kinds, named))
    else:
        raise UserError(f"{file.path}: tokenizer.ggml.model: found {shown(model)}, allowed: gpt2, llama.")
    config: dict = {f"{role}_token": token for role, token in special.items()}
    config |= {"add_bos_token": bool(begins), "clean_up_tokenization_spaces": False}
    if template := file.metadata.get("tokenizer.chat_template"):
        config["chat_template"] = template
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (directory / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def _tokens(file: GGUFFile) -> tuple[list[str], list[int]]:
    """Return the tokens and the kind of each."""
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    kinds = file.metadata.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise UserError(f"{file.path}: tokenizer.ggml.tokens: no list of texts: the file has no tokenizer.")
    if kinds is None:
        kinds = [NORMAL] * len(tokens)
    if not isinstance(kinds, list) or len(kinds) != len(tokens):
        raise UserError(f"{file.path}: tokenizer.ggml.token_type: not a number for each of {len(tokens):,} tokens.")
    return tokens, kinds


def _is_id(number: object, tokens: list[str]) -> bool:
    return type(number) is int and 0 <= number < len(tokens)


def _split_name(file: GGUFFile) -> str:
    found = str(file.metadata.get("tokenizer.ggml.pre"))
    name = SAME_SPLIT.get(found, found)
    if name not in SPLITS:
        raise UserError(
            f"{file.path}: tokenizer.ggml.pre: found {shown(found)!r}, allowed: {', '.join((*SPLITS, *SAME_SPLIT))}."
        )
    return name


def _bpe(file: GGUFFile, tokens: list[str], kinds: list[int], begin: str | None):
    merges = file.metadata.get("tokenizer.ggml.merges")
    pairs = [tuple(str(merge).split(" ")) for merge in merges] if isinstance(merges, list) else None
    if pairs is None or any(len(pair) != 2 for pair in pairs):
        raise UserError(
            f"{file.path}: tokenizer.ggml.merges: not two tokens, with a space between them, in each entry."
        )
    return make_bpe(str(file.path), tokens, kinds, pairs, _split_name(file), begin)


def make_bpe(path: str, tokens: list[str], kinds: list[int], pairs: list, split: str, begin: str | None):
    """Return a tokenizer of the package tokenizers. begin: the token before each text.

    Raises UserError where it does not have each token at its place. path: of the file, for messages.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    vocabulary = {token: number for number, token in enumerate(tokens) if kinds[number] != UNUSED}
    try:
        tokenizer = Tokenizer(models.BPE(vocabulary, pairs, ignore_merges=split in WHOLE_WORDS))
    except Exception as error:  # tokenizers raises no narrower class
        raise UserError(f"{path}: tokenizer.ggml.merges: {shown(error)}. Copy the file again.") from None
    pattern = SPLITS[split]
    first = pre_tokenizers.Digits(individual_digits=True) if pattern == DIGITS else None
    if pattern not in (None, DIGITS):
        first = pre_tokenizers.Split(Regex(pattern), "isolated")
    by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern in (None, DIGITS))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([first, by_bytes]) if first else by_bytes
    tokenizer.normalizer = normalizers.NFC() if split == "qwen2" else None  # as the published tokenizers do
    tokenizer.decoder = decoders.ByteLevel()
    added = [AddedToken(token, normalized=False) for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens(added)
    tokenizer.add_tokens(
        [AddedToken(token, normalized=False) for token, kind in zip(tokens, kinds, strict=True) if kind == USER_DEFINED]
    )
    if begin:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", pair=f"{begin} $A {begin} $B", special_tokens=[(begin, vocabulary[begin])]
        )
    for number, token in enumerate(tokens):
        if kinds[number] != UNUSED and tokenizer.token_to_id(token) != number:
            raise UserError(f"{path}: tokenizer.ggml.tokens: {shown(token)!r} stands at {number} and elsewhere, too.")
    return tokenizer


def _sentencepiece(file: GGUFFile, tokens: list[str], kinds: list[int], named: dict) -> bytes:
    """Return a sentencepiece model. Raises UserError where it does not have each token at its place."""
    import sentencepiece

    scores = file.metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise UserError(f"{file.path}: tokenizer.ggml.scores: not a number for each of {len(tokens):,} tokens.")
    pieces = [
        _field(1, _field(1, token.encode()) + _field(2, struct.pack("<f", score)) + _field(3, min(max(kind, 1), BYTE)))
        for token, score, kind in zip(tokens, scores, kinds, strict=True)
    ]
    ids = {role: number if _is_id(number, tokens) else -1 for role, number in named.items()}
    if ids["unk"] < 0:
        ids["unk"] = kinds.index(UNKNOWN) if UNKNOWN in kinds else 0
    trainer = _field(3, BPE) + _field(4, len(tokens)) + _field(35, int(BYTE in kinds))
    for role, (field, name_field) in ROLE_FIELDS.items():
        trainer += _field(field, ids[role])
        trainer += _field(name_field, tokens[ids[role]].encode()) if ids[role] >= 0 else b""
    begins = int(bool(file.metadata.get("tokenizer.ggml.add_space_prefix", True)))
    normalizer = _field(1, b"identity") + _field(3, begins) + _field(4, 0)
    data = b"".join(pieces) + _field(2, trainer) + _field(3, normalizer)
    try:
        loaded = sentencepiece.SentencePieceProcessor(model_proto=data)
        agree = [loaded.piece_to_id(token) for token in tokens] == [*range(len(tokens))]
    except RuntimeError as error:
        raise UserError(f"{file.path}: its tokens make no sentencepiece model: {shown(error, 200)}.") from None
    if not agree:
        raise UserError(f"{file.path}: tokenizer.ggml.tokens: a token stands at two places. Copy the file again.")
    return data


def _field(number: int, value: int | bytes) -> bytes:
    """Return a field of a protocol buffer: a whole number, a float32 of 4 bytes, or a text or message behind its size.

    sentencepiece's own classes for its files need a newer protobuf than Paddle's dashboard takes.
    """
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    if number == 2 and len(value) == 4:  # the score of a piece; no other field 2 is as short
        return _varint(number << 3 | 5) + value
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


# ---- export


def tokenizer_metadata(directory: Path, config: dict) -> tuple[dict, str]:
    """Return the metadata about the tokenizer of a directory of ours, and a line about it.

    Raises UserError where llama.cpp has no such tokenizer.
    """
    path = next((directory / name for name in SENTENCEPIECE_FILES if (directory / name).is_file()), None)
    if path is None and not (directory / "tokenizer.json").is_file():
        raise UserError(f"{directory}: no tokenizer.json and no sentencepiece model, of which llama.cpp's are made.")
    texts, line = _of_sentencepiece(path, config) if path else _of_json(directory, config)
    ids = read_tokenizer(directory)
    assert ids, "a file of it is there"
    texts |= {f"{key}_token_id": ids.special[role] for role, key in SPECIAL_ROLES.items() if role in ids.special}
    ends = config.get("eos_token_id")
    others = [end for end in (ends if isinstance(ends, list) else []) if end != ids.special.get("eos")]
    if others:
        texts["eot_token_id"] = others[0]
    found = {f"tokenizer.ggml.{key}": value for key, value in texts.items()}
    template = directory_template(directory)
    if template and template.trained is not False:
        found["tokenizer.chat_template"] = template.source
    return found, f"tokenizer: {line}"


def _filled(directory: Path, pieces: dict[int, tuple[str, int]], size: int) -> tuple[list[str], list[int]]:
    """Return tokens and kinds for each id of the model. pieces: (token, kind) by id."""
    if pieces and max(pieces) >= size:
        raise UserError(f"{directory}: the tokenizer has ids up to {max(pieces)}, the model {size:,}, 0 to {size - 1}.")
    filled = [pieces.get(number, (f"[PAD{number}]", UNUSED)) for number in range(size)]
    return [token for token, _ in filled], [kind for _, kind in filled]


def _of_json(directory: Path, config: dict) -> tuple[dict, str]:
    from tokenizers import Tokenizer

    path = directory / "tokenizer.json"
    values, tokenizer = read_object(path), Tokenizer.from_file(str(path))
    model = values["model"]
    if model.get("type") != "BPE":
        raise UserError(f"{path}: model: type: found {model.get('type')!r}, allowed: 'BPE', which llama.cpp knows.")
    pieces = {number: (token, NORMAL) for token, number in model["vocab"].items()}
    if model.get("byte_fallback"):
        bytes_ = {f"<0x{byte:02X}>" for byte in range(256)}
        pieces = {number: (token, BYTE if token in bytes_ else NORMAL) for number, (token, _) in pieces.items()}
        pieces |= {model["vocab"][token]: (token, UNKNOWN) for token in [model.get("unk_token")] if token}
    for token in values.get("added_tokens") or []:
        kind = CONTROL if token["special"] else USER_DEFINED
        known = pieces.get(token["id"], ("", NORMAL))[1]
        pieces[token["id"]] = (token["content"], UNKNOWN if known == UNKNOWN else kind)
    tokens, kinds = _filled(directory, pieces, config["vocab_size"])
    pairs = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
    begins = len(tokenizer.encode("a").ids) > len(tokenizer.encode("a", add_special_tokens=False).ids)
    texts: dict = {"tokens": tokens, "token_type": kinds, "add_bos_token": begins}
    if model.get("byte_fallback"):  # a sentencepiece model in another form: the earlier merged, the likelier
        ranks = {left + right: float(-rank) for rank, (left, right) in reversed([*enumerate(pairs)])}
        scores = [ranks.get(token, -1e6) for token in tokens]
        spaced = tokenizer.encode("a", add_special_tokens=False).tokens[0] != "a"
        return texts | {"model": "llama", "scores": scores, "add_space_prefix": spaced}, "sentencepiece's BPE"
    if not pairs:
        raise UserError(f"{path}: no merges, without which llama.cpp loads no byte-level BPE.")
    for split in SPLITS:
        again = make_bpe(str(path), tokens, kinds, pairs, split, None)
        if all(_ids(again, text) == _ids(tokenizer, text) for text in PROBES):
            texts |= {"model": "gpt2", "pre": split, "merges": [" ".join(pair) for pair in pairs]}
            return texts | {"add_space_prefix": False}, f"byte-level BPE, words split as {split}"
    raise UserError(f"{path}: it splits words in another way than those that have a name here: {', '.join(SPLITS)}.")


def _ids(tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


def _of_sentencepiece(path: Path, config: dict) -> tuple[dict, str]:
    from data_tools.text.encoders import load_sentencepiece

    model = load_sentencepiece(path)
    marks = ((model.is_unknown, UNKNOWN), (model.is_control, CONTROL), (model.is_byte, BYTE), (model.is_unused, UNUSED))
    kinds = [next((kind for is_of, kind in marks if is_of(number)), NORMAL) for number in range(len(model))]
    pieces = {number: (model.id_to_piece(number), kind) for number, kind in enumerate(kinds)}
    scores = [float(model.get_score(number)) for number in range(len(model))]
    pieces |= {number: (token, CONTROL) for token, number in read_object(path.parent / "added_tokens.json").items()}
    tokens, kinds = _filled(path.parent, pieces, config["vocab_size"])
    begins = read_object(path.parent / "tokenizer_config.json").get("add_bos_token") is not False
    texts = {"model": "llama", "tokens": tokens, "token_type": kinds, "add_bos_token": begins}
    spaced = model.encode("a", out_type=str)[0].startswith("\u2581")
    missing = len(tokens) - len(scores)
    return texts | {"scores": scores + [-1000.0] * missing, "add_space_prefix": spaced}, "sentencepiece's BPE"


def probes(encoder) -> list[str]:
    """Return texts on which two tokenizers are compared: PROBES, and some of the vocabulary's own tokens in a row."""
    draw = random.Random(0)
    numbers = [[draw.randrange(encoder.vocab_size) for _ in range(8)] for _ in range(PROBED)]
    own = encoder.decode(numbers)
    return [*PROBES, *(unicodedata.normalize("NFC", text) for text in own if "\ufffd" not in text)]

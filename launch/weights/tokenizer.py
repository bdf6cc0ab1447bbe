"""The tokenizer of a Hugging Face directory as PaddleNLP's AutoTokenizer loads it, with the same ids, and back.

A tokenizer.json, which is complete in itself, goes to PretrainedTokenizerFast, whatever class wrote it; a sentencepiece
model, where there is no tokenizer.json, to the family's own class; from vocab.json and merges.txt a tokenizer.json is
made. (PaddleNLP's class drops spaces before special tokens within a text; a tokenizer.json keeps them.)
"""

# The stubs of tokenizers have properties without setters, and a class method as if it were none.
# pyright: reportAttributeAccessIssue=false

import json
import shutil
from pathlib import Path

from data_tools.dialogues.chat_template import JINJA_FILE, JSON_FILE, directory_template
from data_tools.formats.json_files import read_object, shown
from data_tools.text.encoders import PUBLISHED_TOKENS, JsonEncoder, load_sentencepiece
from launch.errors import UserError
from launch.families.registry import Family
from launch.families.tokenizer_files import read_tokenizer
from launch.weights.gguf_tokenizer import SPLITS
from launch.weights.sentencepiece_json import write_json

CONFIG, JSON, VOCABULARY, MERGES = "tokenizer_config.json", "tokenizer.json", "vocab.json", "merges.txt"
SPECIAL, ADDED = "special_tokens_map.json", "added_tokens.json"
FAST = "PretrainedTokenizerFast"
# What both sides know in tokenizer_config.json.
KEPT = (
    *("bos_token", "eos_token", "unk_token", "pad_token", "additional_special_tokens", "added_tokens_decoder"),
    *("add_bos_token", "add_eos_token", "add_prefix_space", "clean_up_tokenization_spaces", "legacy"),
    *("model_max_length", "padding_side", "chat_template", "do_lower_case"),
)


def import_tokenizer(source: Path, target: Path, family: Family) -> str:
    """Write the tokenizer of `source` into `target`; one line that says what it is, or that there is none.

    Raises:
        UserError, DataError: If one of its files is damaged.
    """
    read_tokenizer(source)
    config = read_object(source / CONFIG)
    files = family.published.tokenizer
    theirs, ours = files.sentencepiece or ("", "")
    if (source / JSON).is_file():
        JsonEncoder(source / JSON)  # raises where it is none
        shutil.copyfile(source / JSON, target / JSON)
        tokenizer_class, line = FAST, JSON
    elif theirs and (source / theirs).is_file():
        shutil.copyfile(source / theirs, target / ours)
        _write_added_tokens(source / theirs, config, target)
        config |= files.settings
        tokenizer_class, line = family.tokenizer_class, f"{theirs} (sentencepiece)"
    elif files.copied and config:
        for name in files.copied:
            _copy(source, target, name)
        if not isinstance(config.get("tokenizer_class"), str):
            raise UserError(
                f"{source / CONFIG}: no tokenizer_class, of which {family.title} has several. Copy the file again."
            )
        tokenizer_class, line = config["tokenizer_class"], config["tokenizer_class"]
    elif (source / VOCABULARY).is_file() and (source / MERGES).is_file():
        (target / JSON).write_text(_make_json(source, config, files.byte_level).to_str(True), encoding="utf-8")
        tokenizer_class, line = FAST, f"{JSON}, made from {VOCABULARY} and {MERGES}"
    else:
        return "tokenizer: no files of one"
    for name in (SPECIAL, ADDED):
        _copy(source, target, name)
    values = {key: value for key, value in config.items() if key not in ("auto_map", "tokenizer_file")}
    if any((source / name).is_file() for name in (JINJA_FILE, JSON_FILE)):
        template = directory_template(source)
        assert template is not None, "one of its files is there"
        values["chat_template"] = template.source
    text = json.dumps(values | {"tokenizer_class": tokenizer_class}, indent=2, ensure_ascii=False)
    (target / CONFIG).write_text(text + "\n", encoding="utf-8")
    return f"tokenizer: {line}, for {tokenizer_class}"


def export_tokenizer(source: Path, target: Path, family: Family) -> str:
    """Write the tokenizer of `source` into `target`; one line that says what it is, or that there is none."""
    config = read_object(source / CONFIG)
    files = family.published.tokenizer
    theirs, ours = files.sentencepiece or ("", "")
    config |= {"added_tokens_decoder": config[PUBLISHED_TOKENS]} if PUBLISHED_TOKENS in config else {}
    values = {key: config[key] for key in KEPT if config.get(key) is not None}
    if any((source / name).is_file() for name in (JINJA_FILE, JSON_FILE)):
        template = directory_template(source)
        assert template is not None, "one of its files is there"
        values["chat_template"] = template.source
    if (source / JSON).is_file():
        shutil.copyfile(source / JSON, target / JSON)
        kind, line = {"tokenizer_class": FAST.replace("Pretrained", "PreTrained")}, JSON
    elif ours and (source / ours).is_file():
        shutil.copyfile(source / ours, target / theirs)
        kind, line = files.published, f"{theirs} (sentencepiece)"
        added = {token: int(number) for token, number in read_object(source / ADDED).items()}
        plain = kind["tokenizer_class"] == "LlamaTokenizer"  # others put marks around a text
        if plain:
            is_written = write_json(source / ours, target / JSON, added, each_begins=config.get("legacy") is not False)
            why_not = f"; no {JSON}, whose ids would differ"
            line += f" and {JSON}" if is_written else why_not
    elif files.copied and config:
        for name in files.copied:
            _copy(source, target, name)
        kind, line = {"tokenizer_class": config["tokenizer_class"]}, config["tokenizer_class"]
    elif (source / VOCABULARY).is_file() and (source / MERGES).is_file():
        for name in (VOCABULARY, MERGES):
            _copy(source, target, name)
        kind, line = {"tokenizer_class": files.byte_level}, f"{VOCABULARY} and {MERGES}"
    else:
        return "tokenizer: no files of one"
    for name in (SPECIAL, ADDED, JINJA_FILE):
        _copy(source, target, name)
    text = json.dumps(values | kind, indent=2, ensure_ascii=False)
    (target / CONFIG).write_text(text + "\n", encoding="utf-8")
    return f"tokenizer: {line}, for {kind['tokenizer_class']}"


def _write_added_tokens(model: Path, config: dict, target: Path) -> None:
    """Move tokens beyond the pieces from the configuration to a file.

    PaddleNLP splits a text only at the file's tokens, and leaves the file aside where the configuration has them, too.
    So they are stored at a key of our own.
    """
    published = config.pop("added_tokens_decoder", {})
    if published:
        config[PUBLISHED_TOKENS] = published
    decoder = {int(number): token["content"] for number, token in published.items()}
    pieces = load_sentencepiece(model).get_piece_size() if decoder else 0
    added = {token: number for number, token in decoder.items() if number >= pieces}
    if added:
        (target / ADDED).write_text(json.dumps(added, ensure_ascii=False) + "\n", encoding="utf-8")


def _make_json(source: Path, config: dict, kind: str):
    """Return byte-level BPE with the special tokens that the configuration names, as GPT2Tokenizer or `kind` has it."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    bpe = models.BPE.from_file(str(source / VOCABULARY), str(source / MERGES))  # pyright: ignore[reportCallIssue]
    tokenizer = Tokenizer(bpe)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=config.get("add_prefix_space", False))
    if kind == "Qwen2Tokenizer":
        words = pre_tokenizers.Split(Regex(str(SPLITS["qwen2"])), "isolated")
        by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, by_bytes])
        tokenizer.normalizer = normalizers.NFC()
    added = config.get("added_tokens_decoder") or {}
    for number in sorted(added, key=int):
        token = AddedToken(added[number]["content"], normalized=False)
        (tokenizer.add_special_tokens if added[number].get("special", True) else tokenizer.add_tokens)([token])
        if (found := tokenizer.token_to_id(token.content)) != int(number):
            raise UserError(
                f"{source / CONFIG}: added_tokens_decoder: found {number} for {shown(token.content)!r}, expected "
                f"{found}, the next id behind {VOCABULARY}. Copy both files again."
            )
    tokenizer.decoder = decoders.ByteLevel()
    named = read_object(source / SPECIAL) | config
    special = {key: named[key] for key in ("bos_token", "eos_token", "unk_token", "pad_token") if named.get(key)}
    special = {key: token["content"] if isinstance(token, dict) else token for key, token in special.items()}
    tokenizer.add_special_tokens(list(dict.fromkeys(special.values())))
    bos = special.get("bos_token")
    if config.get("add_bos_token") and bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
    return tokenizer


def _copy(source: Path, target: Path, name: str) -> None:
    """Copy a file of one directory into another, where it is there."""
    if (source / name).is_file():
        shutil.copyfile(source / name, target / name)

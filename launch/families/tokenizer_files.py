"""What a tokenizer directory says about its ids, from its files alone."""

from dataclasses import dataclass
from pathlib import Path

from data_tools.formats.json_files import read_object
from launch.errors import UserError

ROLES = ("bos", "eos", "pad", "unk")
SENTENCEPIECE_FILES = ("sentencepiece.bpe.model", "tokenizer.model", "spiece.model")


@dataclass(frozen=True)
class TokenizerIds:
    """size: ids are below it. special: id of each role of ROLES that the tokenizer has."""

    size: int
    special: dict[str, int]


def read_tokenizer(directory: Path) -> TokenizerIds | None:
    """The ids of a sentencepiece model, a tokenizer.json or a vocab.json, and of the tokens added to it; None where
    the directory has no such file.

    Raises UserError where a file is damaged.
    """
    try:
        found = _sentencepiece(directory) or _json_vocabulary(directory)
        if found is None:
            return None
        vocabulary, special = found
        config = read_object(directory / "tokenizer_config.json")
        vocabulary |= read_object(directory / "added_tokens.json")
        vocabulary |= {
            token["content"]: int(number) for number, token in config.get("added_tokens_decoder", {}).items()
        }
        names = read_object(directory / "special_tokens_map.json") | config
        for role in ROLES:
            token = names.get(f"{role}_token")
            token = token.get("content") if isinstance(token, dict) else token
            if token in vocabulary:
                special[role] = vocabulary[token]
        return TokenizerIds(max(vocabulary.values()) + 1, special)
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, OSError) as error:
        reason = str(error) or type(error).__name__
        raise UserError(f"{directory}: a file of the tokenizer is damaged: {reason}. Copy it again.") from None


def _sentencepiece(directory: Path) -> tuple[dict[str, int], dict[str, int]] | None:
    """(vocabulary, ids of the roles that the model itself knows)"""
    path = next((directory / name for name in SENTENCEPIECE_FILES if (directory / name).is_file()), None)
    if path is None:
        return None
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    known = {"bos": model.bos_id(), "eos": model.eos_id(), "pad": model.pad_id(), "unk": model.unk_id()}
    vocabulary = {model.id_to_piece(number): number for number in range(model.get_piece_size())}
    return vocabulary, {role: number for role, number in known.items() if number >= 0}


def _json_vocabulary(directory: Path) -> tuple[dict[str, int], dict[str, int]] | None:
    """(vocabulary, no roles: these files do not know any)"""
    if (directory / "tokenizer.json").is_file():
        tokenizer = read_object(directory / "tokenizer.json")
        entries = tokenizer["model"]["vocab"]
        if isinstance(entries, list):  # of a unigram model: [piece, score] in the order of the ids
            entries = {piece: number for number, (piece, _) in enumerate(entries)}
        added = {token["content"]: token["id"] for token in tokenizer.get("added_tokens") or []}
        return entries | added, {}
    if (directory / "vocab.json").is_file():
        return read_object(directory / "vocab.json"), {}
    return None

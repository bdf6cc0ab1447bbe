"""What a tokenizer directory says about its ids, from its files alone, and the vocabulary of a new model with it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from data_tools.formats.errors import DataError
from data_tools.formats.json_files import read_object
from launch.errors import UserError
from launch.families.named_configs import TOKENS

ROLES = ("bos", "eos", "pad", "unk")
SENTENCEPIECE_FILES = ("sentencepiece.bpe.model", "tokenizer.model", "spiece.model")


@dataclass(frozen=True)
class TokenizerIds:
    """The ids of a tokenizer.

    Attributes:
        size: Ids are below it.
        special: Id of each role of ROLES that the tokenizer has.
    """

    size: int
    special: dict[str, int]


def read_tokenizer(directory: Path) -> TokenizerIds | None:
    """Return the ids of a tokenizer's files; None where the directory has none.

    They are a sentencepiece model, a tokenizer.json or a vocab.json, with the tokens added to it.

    Raises:
        UserError: If a file is damaged.
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
    """Return (vocabulary, ids of the roles that the model itself knows)."""
    path = next((directory / name for name in SENTENCEPIECE_FILES if (directory / name).is_file()), None)
    if path is None:
        return None
    from data_tools.text.encoders import is_tiktoken, load_sentencepiece

    if is_tiktoken(path) and (directory / "tokenizer.json").is_file():
        return None
    try:
        model = load_sentencepiece(path)
    except DataError as error:  # which names the fix
        raise UserError(str(error)) from None
    known = {"bos": model.bos_id(), "eos": model.eos_id(), "pad": model.pad_id(), "unk": model.unk_id()}
    vocabulary = {model.id_to_piece(number): number for number in range(model.get_piece_size())}
    return vocabulary, {role: number for role, number in known.items() if number >= 0}


def _json_vocabulary(directory: Path) -> tuple[dict[str, int], dict[str, int]] | None:
    """Return (vocabulary, no roles: these files do not know any)."""
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


MULTIPLE = 8  # of ids: divides over the usual degrees of tensor parallel, and is what tensor cores like


def fresh_vocabulary(config: dict, values, so_far: Callable[[], int | None] = lambda: None) -> int | None:
    """Return the vocab_size that replaces the configuration's; None: it stays.

    With random weights and a tokenizer in a directory it is the tokenizer's, rounded up to a multiple of 8 and of the
    tensor parallel degree; a published configuration that has it already stays as it is.

    Args:
        config: Of the model.
        values: The flags by their names, as attributes.
        so_far: Returns that of the checkpoint that the run continues, which keeps its own: it may be of another degree.
    """
    directory = Path(values.tokenizer_name_or_path or "").expanduser()
    if values.continue_training is not False or not values.tokenizer_name_or_path or not directory.is_dir():
        return None
    if (before := so_far()) is not None:
        return before
    try:
        tokenizer = read_tokenizer(directory)
    except UserError:  # the check of the tokenizer reports it
        return None
    if tokenizer is None or tokenizer.size == config["vocab_size"]:
        return None
    multiple = math.lcm(MULTIPLE, max(int(values.tensor_parallel_degree or 1), 1))
    size = -(-tokenizer.size // multiple) * multiple
    stated = [config.get(key) for key in TOKENS]
    ids = [token for value in stated for token in (value if isinstance(value, list) else [value]) if token is not None]
    return None if any(token >= size for token in ids) else size

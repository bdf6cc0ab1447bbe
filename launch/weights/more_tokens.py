"""A model directory with more tokens: in its tokenizer, and with rows of their own in its embeddings and output layer.

New rows are the mean of those that the tokenizer had before, which makes a new token about as likely as an average one.
A published model often has more rows than its tokenizer has tokens; these are used first.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_tools.formats.json_files import read_object
from launch.adapters.lora_files import LoraFiles
from launch.checkpoint.stored_tensor import StoredTensor, convert
from launch.checkpoint.weight_files import Weight, find_weights
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.families.parameters import HEAD, WORD
from launch.families.registry import family_of_config, parameters
from launch.families.tokenizer_files import MULTIPLE, read_tokenizer
from launch.weights.merging import check_weights, merge, pieces_of
from launch.weights.peft_merge import BeyondLora
from launch.weights.tokenizer import ADDED, JSON


@dataclass(frozen=True)
class MadeTensor(StoredTensor):
    """A tensor that is in memory, in the place of one of a file."""

    values: np.ndarray

    def open(self) -> np.ndarray:
        """Return the values."""
        return self.values


def add_tokens(source: Path, target: Path, tokens: Sequence[str], shard_bytes: int) -> list[int]:
    """Write `target`, the model directory `source` with more tokens; return their ids.

    Raises:
        UserError: If a token is there already, or the tokenizer is of a kind that takes none. Nothing is left behind.
    """
    tokenizer, config = read_tokenizer(source), load_config(str(source))
    has_json = (source / JSON).is_file()
    pieces = source / (family_of_config(config).published.tokenizer.sentencepiece or ("", ""))[1]
    if tokenizer is None or not (has_json or pieces.is_file()):
        raise UserError(f"{source}: no {JSON} or SentencePiece model, the tokenizers that tokens can be added to.")
    known = min(tokenizer.size, config["vocab_size"])
    ids = list(range(tokenizer.size, tokenizer.size + len(tokens)))
    size = max(config["vocab_size"], -(-(ids[-1] + 1) // MULTIPLE) * MULTIPLE)
    weights, whole = find_weights(source, (0, 1)), {}
    for parameter in parameters(config):
        if parameter.kind in (WORD, HEAD):
            axis = int(parameter.kind == HEAD)
            whole[parameter.name] = _grown(weights[parameter.name], known, size, axis)
    none, beyond = LoraFiles(source, {"r": 1, "lora_alpha": 1}, {}), BeyondLora(whole=whole, vocabulary=size)

    def check(directory: Path) -> None:
        values = read_object(directory / "config.json") | {"vocab_size": size}
        (directory / "config.json").write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", "utf-8")
        found = _extend(directory, tokens, ids, None if has_json else pieces)
        if found != ids:
            places = ", ".join(f"{token!r} {number}" for token, number in zip(tokens, found, strict=True))
            raise UserError(
                f"{source}: found the ids {places}, expected new ones from {ids[0]}. Leave out what is there."
            )
        check_weights(source, none, directory, beyond)

    merge(source, none, target, shard_bytes, check, beyond)
    return ids


def _grown(stored: Weight, known: int, size: int, axis: int) -> MadeTensor:
    """Return a matrix of `size` tokens on an axis, with the mean of the first `known` ones behind them."""
    old = stored.shape[axis]
    total = np.zeros(stored.shape[1 - axis])
    values = np.empty(
        tuple(size if place == axis else length for place, length in enumerate(stored.shape)), stored.open().dtype
    )
    place = values if axis == 0 else values.T
    for start, stop in pieces_of(stored):
        rows = stored.open()[start:stop]
        wide = convert(np.ascontiguousarray(rows), stored.dtype, "float32").astype(np.float64)
        if axis:
            values[start:stop, :old] = rows
            total[start:stop] = wide[:, :known].sum(axis=1)
        else:
            values[start:stop] = rows
            total += wide[: max(0, known - start)].sum(axis=0)
    mean = convert((total / known).astype(np.float32), "float32", stored.dtype)
    place[known:] = mean
    return MadeTensor(Path(), stored.dtype, values.shape, 0, values)


def _extend(directory: Path, tokens: Sequence[str], ids: list[int], pieces: Path | None) -> list[int | None]:
    """Add tokens to the files of a tokenizer; return their ids there.

    pieces: its SentencePiece model; None beside a tokenizer.json.
    """
    if pieces is None:
        from tokenizers import AddedToken, Tokenizer

        tokenizer = Tokenizer.from_file(str(directory / JSON))
        tokenizer.add_tokens([AddedToken(token, normalized=False) for token in tokens])
        found = [tokenizer.token_to_id(token) for token in tokens]
        (directory / JSON).write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    else:
        from data_tools.text.encoders import load_sentencepiece

        model, added = load_sentencepiece(pieces), read_object(directory / ADDED)
        known = {model.id_to_piece(number): number for number in range(model.get_piece_size())} | added
        found = [known.setdefault(token, number) for token, number in zip(tokens, ids, strict=True)]
        added |= dict(zip(tokens, ids, strict=True))
        (directory / ADDED).write_text(json.dumps(added, ensure_ascii=False) + "\n", "utf-8")
    return found

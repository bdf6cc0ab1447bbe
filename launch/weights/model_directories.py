"""Model directories imported from Hugging Face and exported to it: whole, or not at all."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from data_tools.progress import progress
from launch.checkpoint.safetensors_file import TORCH, NewTensor, write_safetensors
from launch.checkpoint.stored_tensor import FLOATS, StoredTensor, convert
from launch.checkpoint.weight_files import Misfits, Weight, difference, find_weights, is_computed, listed
from launch.errors import UserError
from launch.families.named_configs import check_values, load_config, read_config
from launch.families.parameters import WORD, Parameter, gives_scores
from launch.families.registry import Family, family_of_config, parameters, their_name
from launch.families.tokenizer_files import read_tokenizer
from launch.weights.block_float8 import block_size, unpacked
from launch.weights.conversion import (
    ENDS,
    TIED_HEAD,
    Origin,
    converted,
    fused_name,
    has_unit_head,
    left_out,
    new_tensor,
    origin,
    our_config,
    plan,
    rows_at_once,
    same_bytes,
    their_config,
)
from launch.weights.tokenizer import export_tokenizer, import_tokenizer
from launch.weights.torch_reader import find_torch_weights
from launch.weights.whole import written_whole

CONFIG, GENERATION = "config.json", "generation_config.json"
# What goes along with an imported model: what it may be used for, and where make download had it from.
LICENCE = re.compile(r"[\w -]*(licen[cs]e|notice|use_policy)[\w -]*(\.(md|txt|pdf))?", re.ASCII | re.IGNORECASE)
DOWNLOAD = "download.json"
# What transformers knows of a generation_config.json of ours.
GENERATION_KEYS = ("do_sample", "temperature", "top_p", "top_k", "repetition_penalty", "max_new_tokens")


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    Attributes:
        tokenizer: A line about it.
        needs_own_code: Whether transformers needs the Python files of the original model to run it.
    """

    family: Family
    parameters: int
    dtypes: list[str]
    tokenizer: str
    needs_own_code: bool


@dataclass(frozen=True)
class TensorSource:
    """A parameter of ours and its place in the Hugging Face file."""

    parameter: Parameter
    place: Origin
    stored: Weight


def export_directory(source: Path, target: Path, dtype: str | None, shard_bytes: int) -> Exported:
    """Write `target`, a Hugging Face model directory, from `source`. Memory: the largest tensor, mapped, and pieces.

    dtype: of the weights; None: as they are. The result is read back as an import would, and compared.

    Raises:
        UserError: If source is not a whole model or target exists already. Nothing is left behind.
    """
    if not (source / CONFIG).is_file():
        raise UserError(f"{source / CONFIG}: no such file. Name the model directory of a run, or of `make merge`.")
    config = load_config(str(source))
    family = family_of_config(config)
    sources = parameter_sources(config, source)
    tensors = their_tensors(sources, family, dtype)
    dtypes = sorted({tensor.dtype for tensor in tensors})
    theirs = their_config(config, dtypes[0] if len(dtypes) == 1 else "float32")
    with written_whole(target) as directory:
        with progress("exporting", sum(tensor.nbytes for tensor in tensors)) as advance:
            write_safetensors(directory, tensors, shard_bytes, advance, TORCH)
        tokenizer = export_tokenizer(source, directory, family)
        if gives_scores(config):
            # By it transformers finds the last token of a text in a batch. Where a text may end with it, there is
            # none: one text at a time is scored then, and more are refused.
            ours = read_tokenizer(source)
            special = ours.special if ours else {}
            theirs["pad_token_id"] = None if special.get("pad") == special.get("eos") else special.get("pad")
        else:
            _write_json(directory / GENERATION, _generation_config(source, theirs))
        _write_json(directory / CONFIG, theirs)
        _read_back(directory, theirs, sources, dtype)
    size = sum(item.parameter.size for item in sources)
    return Exported(family, size, dtypes, tokenizer, family.published.own_code)


def parameter_sources(config: dict, directory: Path) -> list[TensorSource]:
    """Return all parameters, grouped by the Hugging Face tensor. Raises UserError with the names of all misfits."""
    model_type, expected = config["model_type"], parameters(config)
    names = {their_name(parameter.name, model_type) for parameter in expected}
    if family_of_config(config).published.fused:
        names |= {fused for name in names if (fused := fused_name(name, model_type)[0])}
    stored, misfits = find_weights(directory, (0, 1)), Misfits()
    for parameter in expected:
        found = stored.get(parameter.name)
        if found is None:
            misfits.missing.add(parameter.name)
        elif found.shape != parameter.shape:
            misfits.different.add(difference(parameter.name, str(list(found.shape)), str(list(parameter.shape))))
        elif found.dtype not in FLOATS:
            misfits.different.add(difference(parameter.name, found.dtype, "floating-point numbers"))
    word = next(parameter.name for parameter in expected if parameter.kind == WORD)
    for name in stored.keys() - {parameter.name for parameter in expected}:
        tied_head = name.startswith("lm_head.") and word in stored and same_bytes(stored[name], stored[word])
        if not tied_head and not is_computed(name):
            misfits.extra.add(name)
    if misfits:
        raise UserError(f"{directory}: the weights are not those of its config.json: {misfits}")
    sources = (TensorSource(item, origin(item, model_type, names), stored[item.name]) for item in expected)
    return sorted(sources, key=lambda item: (item.place.name, item.place.part))


def their_tensors(sources: list[TensorSource], family: Family, dtype: str | None) -> list[NewTensor]:
    """Return the tensors to be written, in `dtype`; None: in their own."""
    tensors = []
    for name, parts in groupby(sources, key=lambda item: item.place.name):
        parts = list(parts)
        tensor = NewTensor(name, dtype or parts[0].stored.dtype, parts[0].place.shape, partial(_pieces, parts, dtype))
        tensors.append(tensor)
        if family.published.two_copies and parts[0].parameter.kind == WORD:
            tensors.append(NewTensor(TIED_HEAD, tensor.dtype, tensor.shape, tensor.pieces))
    return tensors


def _pieces(parts: list[TensorSource], dtype: str | None) -> Iterator[np.ndarray]:
    """Yield rows of a tensor of theirs. Raises UserError where a value is too large for float16."""
    requested = dtype or parts[0].stored.dtype
    for part in parts:
        ours = part.stored.open()
        theirs = ours.T if part.place.transposed else ours
        step = rows_at_once(theirs)
        for start in range(0, len(theirs), step):
            piece = np.ascontiguousarray(theirs[start : start + step])
            yield converted(part.parameter.name, piece, part.stored.dtype, requested)


def _generation_config(source: Path, theirs: dict) -> dict:
    path = source / GENERATION
    ours = read_config(path, "a model") if path.exists() else {}
    tokens = {key: value for key, value in theirs.items() if key.endswith("_token_id")}
    return tokens | {key: ours[key] for key in (*GENERATION_KEYS, ENDS) if ours.get(key) is not None}


def _read_back(directory: Path, theirs: dict, sources: list[TensorSource], dtype: str | None) -> None:
    """Raise UserError unless an import of the export gives the same parameters, to the bit."""
    again = our_config(theirs, str(directory / CONFIG))
    planned = plan(again, find_torch_weights(directory), unit_head=False)
    conversions = {conversion.parameter.name: conversion for conversion in planned}
    with progress("reading back", sum(item.stored.nbytes for item in sources)) as advance:
        for item in sources:
            row = 0
            stored = item.stored.open()
            for piece in new_tensor(conversions[item.parameter.name], None).pieces():
                expected = np.ascontiguousarray(stored[row : row + len(piece)])
                if not np.array_equal(convert(expected, item.stored.dtype, dtype or item.stored.dtype), piece):
                    raise UserError(
                        f"{item.place.name} is not {item.parameter.name} when read back: is the disk sound?"
                    )
                row += len(piece)
                advance(expected.nbytes)


def _write_json(path: Path, values: dict) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# ---- import


@dataclass(frozen=True)
class Imported:
    """The result of an import.

    Attributes:
        tokenizer: A line about it.
    """

    family: Family
    parameters: int
    dtypes: list[str]
    tokenizer: str


def import_directory(source: Path, target: Path, dtype: str | None, shard_bytes: int) -> Imported:
    """Write `target`, a model directory of ours, from `source`. Memory: some pieces of a tensor.

    dtype: of the weights; None: as they are, those in FP8 in float32. Runs no code from source, and reads only the
    files that it needs.

    Raises:
        UserError: If source is no such model or target exists already. Nothing is left behind.
    """
    theirs = read_config(source / CONFIG, "a Hugging Face model")
    block = block_size(theirs, source / CONFIG)  # before files that no other reader knows
    stored = find_torch_weights(source)
    stored = unpacked(stored, block) if block else stored
    return import_model(theirs, source / CONFIG, stored, source, target, dtype, shard_bytes)


def import_model(
    theirs: dict,
    origin: Path,
    stored: Mapping[str, StoredTensor],
    texts: Path,
    target: Path,
    dtype: str | None,
    shard_bytes: int,
) -> Imported:
    """Write `target` from the values of a config.json and tensors by Hugging Face's names.

    origin: of the values, for messages. texts: a directory with the tokenizer's files and what else goes along.
    """
    config = our_config(theirs, str(origin))
    family = family_of_config(config)
    conversions = plan(config, stored, has_unit_head(theirs))
    tensors = [new_tensor(conversion, dtype) for conversion in conversions]
    dtypes = sorted({tensor.dtype for tensor in tensors})
    config |= {
        "architectures": config.get("architectures", [family.model_class]),
        "dtype": dtypes[0] if len(dtypes) == 1 else "float32",
    }
    with written_whole(target) as directory:
        with progress("importing", sum(tensor.nbytes for tensor in tensors)) as advance:
            write_safetensors(directory, tensors, shard_bytes, advance)
        tokenizer = _import_texts(texts, directory, family, config)
    if others := left_out(stored, config["model_type"]):
        tokenizer += f"\nleft out, because the model here does not predict several tokens at once: {listed(others)}"
    return Imported(family, sum(conversion.parameter.size for conversion in conversions), dtypes, tokenizer)


def import_config(source: Path, target: Path) -> Imported:
    """Import without weights, which source need not have: enough to plan and to rehearse."""
    theirs = read_config(source / CONFIG, "a Hugging Face model")
    config = our_config(theirs, str(source / CONFIG))
    family = family_of_config(config)
    dtype = theirs.get("dtype") or theirs.get("torch_dtype") or "float32"
    config |= {"architectures": config.get("architectures", [family.model_class]), "dtype": dtype}
    with written_whole(target) as directory:
        tokenizer = _import_texts(source, directory, family, config)
    return Imported(family, sum(parameter.size for parameter in parameters(config)), [dtype], tokenizer)


def _import_texts(source: Path, directory: Path, family: Family, config: dict) -> str:
    """Import everything but the weights and return a line about the tokenizer."""
    tokenizer = import_tokenizer(source, directory, family)
    ids = read_tokenizer(source)
    if ids and ids.size > config["vocab_size"]:
        found = f"{ids.size:,} ids, the model's vocabulary {config['vocab_size']:,}: texts with the others are refused"
        tokenizer = f"{tokenizer}\nwarning: the tokenizer has {found}"
    (directory / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    if (source / GENERATION).exists() and not gives_scores(config):
        theirs = read_config(source / GENERATION, "a Hugging Face model")
        check_values(theirs, str(source / GENERATION))
        _write_json(directory / GENERATION, {ENDS: theirs.get(ENDS) or config.get(ENDS)})
    for path in source.iterdir():
        if (LICENCE.fullmatch(path.name) or path.name == DOWNLOAD) and path.is_file():
            shutil.copyfile(path, directory / path.name)
    return tokenizer

"""LoRA adapters from our format to that of Hugging Face's PEFT, which scales by alpha / r as we do, and back.

rsLoRA's alpha / sqrt(r) is use_rslora there. A LoRA that began by PiSSA is a plain one in both formats. A DoRA has
.lora_magnitude_vector there, the trained lengths of the weight's columns; ours is what they add to the base's.

Names there: base_model.model.<the layer's name in the Hugging Face model>.lora_A.weight [r, inputs] and .lora_B.weight
[outputs, r], each ours transposed (peft/utils/save_and_load.py).
"""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from launch.adapters import lora_files
from launch.adapters.lora_files import TOKEN_IDS, TOKEN_ROWS, LoraFiles, read_lora, require_lora, scaling_of
from launch.checkpoint.safetensors_file import SINGLE, TORCH, NewTensor, read_header, write_safetensors
from launch.checkpoint.stored_tensor import StoredTensor, convert
from launch.checkpoint.weight_files import Misfits, Weight, difference, find_weights
from launch.errors import UserError
from launch.families.lora_targets import named_by
from launch.families.named_configs import load_config, read_config
from launch.families.parameters import LINEAR, SCORE, WORD
from launch.families.registry import family_of_config, parameters, their_name
from launch.families.tokenizer_files import SENTENCEPIECE_FILES, read_tokenizer
from launch.weights.merging import NOTHING, check_weights, column_lengths, merge
from launch.weights.peft_keys import check_keys
from launch.weights.peft_merge import PREFIX, ROWS, BeyondLora, take_beyond
from launch.weights.tokenizer import import_tokenizer
from launch.weights.torch_reader import read_torch
from launch.weights.whole import written_whole

WEIGHTS, BIN, CONFIG = "adapter_model.safetensors", "adapter_model.bin", lora_files.PEFT_CONFIG
OUR_WEIGHTS = "peft_model-00001-of-00001.safetensors"
TOKENIZER_FILES = (
    *SENTENCEPIECE_FILES,
    *("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "added_tokens.json"),
    *("special_tokens_map.json", "chat_template.jinja", "chat_template.json"),
)
MAGNITUDE = "lora_magnitude_vector"
CHOICES = ("target_modules", "exclude_modules", "layers_to_transform")
ONE_FILE = 1 << 62  # bytes


def export_adapter(source: Path, base: Path | None, target: Path, base_model_name: str | None = None) -> int:
    """Write `target` from an adapter's directory; the number of tensors.

    base: our directory or name of its model, default as the adapter names it; of a DoRA with weights.
    base_model_name: where PEFT finds the model in Hugging Face's format, a directory or a name on its hub; default:
    base.

    Raises:
        UserError: If source is no adapter, or one that PEFT cannot express. Nothing is left behind.
    """
    lora = read_lora(source)
    name = str(base or lora.config.get("base_model_name_or_path") or "")
    config = load_config(name)
    if config.get("alibi"):
        raise UserError(
            "the base is a Baichuan-13B, whose Hugging Face model has query, key and value in one matrix: an adapter "
            "of ours has one pair for each. Join them first: make merge, then export the merged model."
        )
    tensors, weights = [], find_weights(Path(name), (0, 1)) if lora.is_dora else {}
    for layer, pair in lora.layers.items():
        theirs = _their_layer(layer, config)
        tensors += [_transposed(f"{theirs}.lora_A.weight", pair.a), _transposed(f"{theirs}.lora_B.weight", pair.b)]
        if pair.magnitude:
            tensors.append(_magnitude(f"{theirs}.{MAGNITUDE}", pair.magnitude, weights, layer, 1))
    if lora.score:
        tensors.append(_transposed(f"{PREFIX}{SCORE}", lora.score))
    for name, rows in lora.rows.items():
        tensors.append(_copied(f"{PREFIX}{_module(name, config)}{ROWS}", rows))
    with written_whole(target) as directory:
        write_safetensors(directory, tensors, ONE_FILE, lambda _: None, TORCH)
        (directory / SINGLE).rename(directory / WEIGHTS)
        _write_json(directory / CONFIG, _peft_config(lora, config, base_model_name or name))
    return len(tensors)


def import_adapter(source: Path, base: Path, target: Path, shard_bytes: int = ONE_FILE) -> tuple[int, bool]:
    """Write `target` from an adapter of PEFT's: ours, or both merged where it changes what no adapter here does.

    Layers of another rank or scaling than the others get zeros up to the largest rank, and the scaling into B.

    Args:
        source: The adapter.
        base: Our directory of its model; with weights for a merge and for a DoRA.
        target: A new directory.
        shard_bytes: Of the largest file of a merged model.

    Returns:
        The number of the adapter's tensors, and whether it was merged.

    Raises:
        UserError: And leaves nothing behind, where source is no LoRA of the base, or one that cannot be carried over.
    """
    theirs = read_config(source / CONFIG, "a PEFT adapter")
    check_keys(theirs, source / CONFIG)
    require_lora({key: value for key, value in theirs.items() if key != "scaling"}, source / CONFIG)
    if (source / WEIGHTS).is_file() or not (source / BIN).is_file():  # where both are there, as PEFT does
        stored = read_header(source / WEIGHTS)[0]
    else:
        stored = read_torch(source / BIN)
    config = load_config(str(base))
    count, score = len(stored), stored.pop(f"{PREFIX}{SCORE}", None)
    beyond = take_beyond(stored, theirs, config, parameters(config))
    pairs = _pairs(source, stored, theirs, base)
    if not beyond.whole and beyond.same_ids:
        with written_whole(target) as directory:
            _write_lora(directory, theirs, pairs, score, base, beyond)
        return count, False
    with tempfile.TemporaryDirectory() as folder:
        _write_lora(Path(folder), theirs, pairs, score, base)
        lora = read_lora(folder)

        def check(merged: Path) -> None:
            if beyond.vocabulary:
                _take_tokens(source, merged, beyond.vocabulary)
            check_weights(base, lora, merged, beyond)

        merge(base, lora, target, shard_bytes, check, beyond)
    return count, True


def _take_tokens(source: Path, merged: Path, vocabulary: int) -> None:
    """Give a merged model the number of tokens and the tokenizer of an adapter's directory."""
    config = read_config(merged / "config.json", "a model") | {"vocab_size": vocabulary}
    if read_tokenizer(source) is None:
        raise UserError(
            f"{source}: no tokenizer, but embeddings of {vocabulary:,} tokens, which is not the base's number. Put the "
            "files of the tokenizer that it was trained with beside it."
        )
    if next(item for item in parameters(config) if item.kind == WORD).shape[0] != vocabulary:
        raise UserError(f"{source}: found embeddings of {vocabulary:,} tokens, which this family counts otherwise.")
    for name in TOKENIZER_FILES:
        (merged / name).unlink(missing_ok=True)
    _write_json(merged / "config.json", config)
    import_tokenizer(source, merged, family_of_config(config))


def _write_lora(
    directory: Path,
    theirs: dict,
    pairs: dict[str, "_PeftPair"],
    score: StoredTensor | None,
    base: Path,
    beyond: BeyondLora = NOTHING,
) -> None:
    """Write pairs of A and B, and rows of tokens, as an adapter of ours."""
    weights = find_weights(base, (0, 1)) if theirs.get("use_dora") else {}
    ours = _our_config(theirs, sorted({layer.rpartition(".")[2] for layer in pairs}), base)
    scalings = {layer: _rank_and_scaling(theirs, pair.peft_name) for layer, pair in pairs.items()}
    if theirs.get("rank_pattern") or theirs.get("alpha_pattern"):
        rank = max(rank for rank, _ in scalings.values())
        ours |= {"r": rank, "lora_alpha": rank, "rslora": False}
        scaled = [(layer, pair, scalings[layer][1]) for layer, pair in pairs.items()]
    else:
        scaled = [(layer, pair, 1.0) for layer, pair in pairs.items()]
    tensors = [_transposed(SCORE, score)] if score else []
    for name, (ids, rows) in beyond.rows.items():
        ours[TOKEN_IDS] = ids
        tensors.append(_copied(f"{name.removesuffix('weight')}{TOKEN_ROWS}", rows))
    for layer, pair, factor in scaled:
        tensors += [_widened(f"{layer}.lora_A", pair.a, ours["r"], 1, 1.0)]
        tensors += [_widened(f"{layer}.lora_B", pair.b, ours["r"], 0, factor)]
        if pair.magnitude:
            tensors.append(_magnitude(f"{layer}.lora_magnitude", pair.magnitude, weights, layer, -1))
    write_safetensors(directory, tensors, ONE_FILE, lambda _: None)
    (directory / SINGLE).rename(directory / OUR_WEIGHTS)
    index = {"metadata": {}, "weight_map": {tensor.name: OUR_WEIGHTS for tensor in tensors}}
    _write_json(directory / lora_files.INDEX, index)
    _write_json(directory / lora_files.CONFIG, ours)
    read_lora(directory)  # pairs, ranks and shapes


@dataclass(frozen=True)
class _PeftPair:
    """A [rank, inputs], B [outputs, rank], and a DoRA's lengths of a layer. peft_name: in the Hugging Face model."""

    peft_name: str
    a: StoredTensor
    b: StoredTensor
    magnitude: StoredTensor | None


def _pairs(source: Path, stored: dict[str, StoredTensor], theirs: dict, base: Path) -> dict[str, _PeftPair]:
    """Return A and B by our layers' names. stored: all of these, by PEFT's names."""
    config = load_config(str(base))
    linear = [parameter.name.removesuffix(".weight") for parameter in parameters(config) if parameter.kind == LINEAR]
    pairs, misfits = {}, Misfits()
    for layer in linear:
        name = their_name(layer, config["model_type"])
        a, b = (stored.pop(f"{PREFIX}{name}.lora_{half}.weight", None) for half in "AB")
        if not a and not b:
            continue
        rank, _ = _rank_and_scaling(theirs, name)
        magnitude = stored.pop(f"{PREFIX}{name}.{MAGNITUDE}", None) if theirs.get("use_dora") else None
        if not (a and b and len(a.shape) == len(b.shape) == 2 and (a.shape[0], b.shape[1]) == (rank, rank)):
            found = " and ".join(str(list(half.shape)) if half else "nothing" for half in (a, b))
            misfits.different.add(difference(name, found, f"A and B of rank {rank}"))
        elif theirs.get("use_dora") and (not magnitude or magnitude.shape != b.shape[:1]):
            found = f"a {MAGNITUDE} of {list(magnitude.shape)}" if magnitude else f"no {MAGNITUDE}"
            raise UserError(f"{source}: use_dora: found true, but {found} of {layer}. Copy it again.")
        else:
            pairs[layer] = _PeftPair(name, a, b, magnitude)
        if not _is_adapted(theirs, name):
            choices = {key: theirs[key] for key in CHOICES if theirs.get(key)}
            raise UserError(
                f"{source / CONFIG}: found {choices}, which leave out {name}, of which there are tensors: PEFT would "
                "not read them. Take them out, or change these keys."
            )
    misfits.extra |= stored.keys()
    if misfits or not pairs:
        raise UserError(f"{source} is no LoRA adapter of {base}: {misfits or 'no tensors'}.")
    return pairs


def _is_adapted(theirs: dict, layer: str) -> bool:
    """Return whether PEFT gives a layer an adapter (check_target_module_exists in its tuners_utils.py)."""
    targets, excluded, chosen = (theirs.get(key) for key in CHOICES)
    if excluded and named_by(excluded, layer):
        return False
    if targets is None:  # by the model's class
        return True
    if chosen in (None, []) or isinstance(targets, str) or layer in targets:
        return named_by(targets, layer)
    patterns = theirs.get("layers_pattern") or [r"[^.]*"]
    found = (
        re.match(rf"(?:^|.*?\.){pattern}\.(\d+)\.", layer)
        for pattern in ([patterns] if isinstance(patterns, str) else patterns)
    )
    number = next((int(match[1]) for match in found if match), None)
    return named_by(targets, layer) and number in (chosen if isinstance(chosen, list) else [chosen])


def _rank_and_scaling(theirs: dict, layer: str) -> tuple[int, float]:
    """Return the rank of a layer and the factor of its product (get_pattern_key in PEFT's utils/other.py)."""
    values = dict(theirs)
    for key, pattern in (("r", "rank_pattern"), ("lora_alpha", "alpha_pattern")):
        of_layers = theirs.get(pattern) or {}
        found = (value for name, value in of_layers.items() if re.match(rf"(.*\.)?({name})$", layer))
        values[key] = next(found, theirs[key])
    return values["r"], scaling_of(values | {"rslora": theirs.get("use_rslora") is True})


def _our_config(theirs: dict, modules: list[str], base: Path) -> dict:
    """Return the configuration that paddlenlp's LoRAConfig reads."""
    return {
        "base_model_name_or_path": str(base),
        "dtype": "float32",
        "lora_alpha": theirs["lora_alpha"],
        "lora_dropout": theirs.get("lora_dropout", 0.0),
        "r": theirs["r"],
        "rslora": theirs.get("use_rslora") is True,
        **({"use_dora": True} if theirs.get("use_dora") else {}),
        "target_modules": [rf".*\.{module}" for module in modules],
        "tensor_parallel_degree": -1,
    }


def _module(rows: str, config: dict) -> str:
    """Return the Hugging Face module of a layer with trained rows. rows: their name here."""
    return their_name(f"{rows.removesuffix(TOKEN_ROWS)}weight", config["model_type"]).removesuffix(".weight")


def _copied(name: str, stored: StoredTensor) -> NewTensor:
    return NewTensor(name, stored.dtype, stored.shape, lambda: iter([stored.open()]))


def _their_layer(layer: str, config: dict) -> str:
    return PREFIX + their_name(f"{layer}.weight", config["model_type"]).removesuffix(".weight")


def _widened(name: str, stored: StoredTensor, rank: int, axis: int, factor: float) -> NewTensor:
    """Return a matrix of theirs as ours, times a factor, with zeros up to a rank on an axis of ours."""
    if stored.shape[1 - axis] == rank and factor == 1:
        return _transposed(name, stored)
    missing = [(0, rank - size if place == axis else 0) for place, size in enumerate(stored.shape[::-1])]

    def pieces() -> Iterator[np.ndarray]:
        ours = convert(stored.open(), stored.dtype, "float32").T * np.float32(factor)
        yield np.ascontiguousarray(np.pad(ours, missing))

    shape = tuple(size + added for size, (_, added) in zip(stored.shape[::-1], missing, strict=True))
    return NewTensor(name, "float32", shape, pieces)


def _magnitude(name: str, stored: StoredTensor, weights: Mapping[str, Weight], layer: str, sign: int) -> NewTensor:
    """Return what is stored, plus (to PEFT's format) or minus (from it) the lengths of the base's columns."""
    weight = weights.get(f"{layer}.weight")
    if weight is None or weight.shape[1:] != stored.shape:
        found = "nothing" if weight is None else list(weight.shape)
        raise UserError(f"{layer}.weight of the base: found {found}, expected outputs: {stored.shape[0]}. See --base.")

    def pieces() -> Iterator[np.ndarray]:
        yield (convert(stored.open(), stored.dtype, "float32") + sign * column_lengths(weight)).astype(np.float32)

    return NewTensor(name, "float32", stored.shape, pieces)


def _transposed(name: str, stored: StoredTensor) -> NewTensor:
    shape = stored.shape[::-1]
    return NewTensor(name, stored.dtype, shape, lambda: iter([np.ascontiguousarray(stored.open().T)]))


def _peft_config(lora: LoraFiles, config: dict, base: str) -> dict:
    layers = sorted({_their_layer(layer, config).rpartition(".")[2] for layer in lora.layers})
    rslora = lora.config.get("rslora") is True
    modules = [_module(name, config).rpartition(".")[2] for name in lora.rows]
    return {
        "peft_type": "LORA",
        "task_type": "SEQ_CLS" if lora.score else "CAUSAL_LM",
        "modules_to_save": ["score"] if lora.score else None,
        "trainable_token_indices": {module: lora.token_ids for module in modules} or None,
        "base_model_name_or_path": base,
        "r": lora.config["r"],
        "lora_alpha": lora.config["lora_alpha"] if rslora else lora.scaling * lora.config["r"],
        "use_rslora": rslora,
        "use_dora": lora.is_dora,
        "lora_dropout": lora.config.get("lora_dropout", 0.0),
        "target_modules": layers,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def _write_json(path: Path, values: dict) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")

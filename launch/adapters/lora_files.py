"""The files of a LoRA adapter: the layers it changes, and their tensors; of a reward model its score, too. No Paddle.

    lora = read_lora("checkpoints/llama-7b-lora")
    lora.layers["llama.layers.0.self_attn.q_proj"].a.open()         # a memory-mapped array

Formats: safetensors with an index, as in launch/adapters/adapter_files.py and in unified checkpoints, from any layout
(each pipeline stage has a file of its own), and PaddleNLP's lora_model_state.pdparams.
"""

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from launch.checkpoint.pdparams_reader import read_pdparams
from launch.checkpoint.safetensors_file import read_header
from launch.checkpoint.stored_tensor import FLOATS, StoredTensor
from launch.checkpoint.weight_files import Misfits, checked_manifest, difference, read_indexed
from launch.config.typed import typed, within_quotes
from launch.errors import UserError
from launch.families.named_configs import read_config
from launch.families.parameters import SCORE

CONFIG, INDEX = "lora_config.json", "peft_model.safetensors.index.json"
PDPARAMS = "lora_model_state.pdparams"
PREFIX_CONFIG = "prefix_config.json"  # of the other kind of adapter
PEFT_CONFIG = "adapter_config.json"
# The first adapter of a run with --pissa 1, in its output directory; before it trains, by another name.
PISSA_START, PISSA_NEW = "pissa_start", "pissa_start.new"
# Kinds of adapters that add more than their product, or change the base.
OTHER_KINDS = ("pissa", "loraga", "use_mora", "lora_use_mixer", "do_qat")
TOKEN_ROWS, TOKEN_IDS = "token_rows", "trainable_token_indices"  # of the embedding and an untied head, by PEFT's key
SMALLEST = 1e-24  # square of the length of a column of zeros, of a DoRA


@dataclass(frozen=True)
class LoraLayer:
    """The change of a linear layer's weight [inputs, outputs]: scaling * a @ b.

    Attributes:
        a: [inputs, r].
        b: [r, outputs].
        magnitude: [outputs], of a DoRA: what the weight's columns are longer by than the base's, after the change.
    """

    a: StoredTensor
    b: StoredTensor
    magnitude: StoredTensor | None = None

    @property
    def tensors(self) -> dict[str, StoredTensor]:
        """The tensors by the ends of their names."""
        parts = {"lora_A": self.a, "lora_B": self.b}
        return parts | ({"lora_magnitude": self.magnitude} if self.magnitude else {})


@dataclass(frozen=True)
class LoraFiles:
    """The files of a LoRA adapter.

    Attributes:
        layers: By name, without `.weight`.
        config: Of lora_config.json.
        score: Of a reward model, trained whole, [hidden size, 1]; None for an adapter of a model that writes text.
        rows: Trained rows of word embedding and untied output layer, [tokens, hidden size], by the layer and
            `.token_rows`; their tokens are token_ids.
    """

    directory: Path
    config: dict
    layers: dict[str, LoraLayer]
    score: StoredTensor | None = None
    rows: Mapping[str, StoredTensor] = field(default_factory=dict)

    @property
    def token_ids(self) -> list[int]:
        """Ids of the tokens whose rows are trained."""
        return self.config.get(TOKEN_IDS) or []

    @property
    def tensors(self) -> dict[str, StoredTensor]:
        """All tensors by name."""
        found = {SCORE: self.score} if self.score else {}
        found |= self.rows
        for name, layer in self.layers.items():
            found |= {f"{name}.{part}": tensor for part, tensor in layer.tensors.items()}
        return found

    @property
    def is_dora(self) -> bool:
        """Whether each layer has a magnitude."""
        return self.config.get("use_dora") is True

    @property
    def scaling(self) -> float:
        """The factor of the product of both matrices."""
        return scaling_of(self.config)


def require_adapter(directory: Path, base: object = "BASE") -> None:
    """Raise UserError where a directory has neither kind of adapter. base: of PEFT's adapter, for the message."""
    if (directory / PEFT_CONFIG).is_file() and not (directory / CONFIG).is_file():
        ours, flag = Path("models") / directory.resolve().name, within_quotes(f"--base {shlex.quote(str(base))}")
        raise UserError(
            f"{directory}: an adapter in PEFT's format. Import it, and give the result: make import "
            f'MODEL={typed(directory)} OUTPUT={typed(ours)} ARGS="{flag}"'
        )
    if not (directory / CONFIG).is_file() and not (directory / PREFIX_CONFIG).is_file():
        raise UserError(f"{directory}: no adapter: neither {CONFIG} nor {PREFIX_CONFIG} is there.")


def read_lora(directory: str | Path) -> LoraFiles:
    """Return the adapter of a directory.

    Raises:
        UserError: If the directory holds no adapter, one of another kind, or a broken one.
    """
    directory = Path(directory)
    if (directory / PEFT_CONFIG).is_file():
        require_adapter(directory)
    config = read_config(directory / CONFIG, "a LoRA adapter")
    require_lora(config, directory / CONFIG)
    other = [kind for kind in OTHER_KINDS if config.get(kind)]
    if other:
        raise UserError(f"{directory / CONFIG}: {other[0]}: found {config[other[0]]!r}, allowed: false: plain LoRA.")
    checked_manifest(directory, (0, 1))
    tensors = _tensors(directory)
    score = tensors.pop(SCORE, None)
    rows = {name: tensors.pop(name) for name in [*tensors] if name.endswith(f".{TOKEN_ROWS}")}
    _require_rows(config.get(TOKEN_IDS), rows, directory / CONFIG)
    layers = _layers(directory, tensors, config["r"], config.get("use_dora") is True)
    if "target_modules" in config:
        _require_targets(target_modules(config, directory / CONFIG), layers, directory / CONFIG)
    return LoraFiles(directory, config, layers, score, rows)


def require_fit(lora: LoraFiles, base: Path | str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check that an adapter belongs to a model.

    shapes: of the model's tensors by name, a layer's weight [inputs, outputs].

    Raises:
        UserError: In two lines, where a layer of the adapter is missing in the model or has another size.
    """
    misfits = Misfits()
    for layer, pair in lora.layers.items():
        name, shape = f"{layer}.weight", (pair.a.shape[0], pair.b.shape[1])
        if name not in shapes:
            misfits.missing.add(name)
        elif tuple(shapes[name]) != shape:
            misfits.different.add(difference(name, str(list(shapes[name])), f"{list(shape)} by the adapter"))
    for name, rows in lora.rows.items():
        weight = f"{name.removesuffix(TOKEN_ROWS)}weight"
        if weight not in shapes:
            misfits.missing.add(weight)
        elif rows.shape[1] not in shapes[weight] or max(lora.token_ids) >= max(shapes[weight]):
            expected = f"{max(lora.token_ids) + 1} tokens of {rows.shape[1]} numbers at least by the adapter"
            misfits.different.add(difference(weight, str(list(shapes[weight])), expected))
    if SCORE in shapes and not lora.score:
        misfits.extra.add(SCORE)
    if misfits:
        trained_on = lora.config.get("base_model_name_or_path") or "its name was not kept"
        raise UserError(
            f"{lora.directory} is no adapter of {base}: {misfits}.\n"
            f"Give the model that it was trained on: {trained_on}."
        )


def require_lora(config: dict, path: Path) -> None:
    """Raise UserError where a configuration lacks a required value of LoRA, or has an impossible one."""
    missing = [key for key in ("r", "lora_alpha") if key not in config]
    if missing:
        raise UserError(f"{path}: {', '.join(missing)} missing: not the configuration of a LoRA adapter.")
    if type(config["r"]) is not int or config["r"] < 1:
        raise UserError(f"{path}: r: found {config['r']!r}, allowed: a whole number from 1.")
    for key in ("lora_alpha", "scaling"):
        value = config.get(key)
        if value is not None and (type(value) not in (int, float) or not math.isfinite(value)):
            raise UserError(f"{path}: {key}: found {value!r}, allowed: a finite number.")
    expected = scaling_of(config)
    if not math.isclose(config.get("scaling") or expected, expected, rel_tol=1e-6):
        by_rank = "lora_alpha / sqrt(r)" if config.get("rslora") is True else "lora_alpha / r"
        raise UserError(
            f"{path}: scaling: found {config['scaling']!r}, allowed: {expected:g}, which is {by_rank}. To make the "
            "adapter stronger or weaker, change lora_alpha and take scaling out."
        )


def scaling_of(config: dict) -> float:
    """Return what the product of an adapter's matrices is multiplied by, as paddlenlp reckons it (LoRAConfig)."""
    return config["lora_alpha"] / (math.sqrt(config["r"]) if config.get("rslora") is True else config["r"])


def _require_rows(ids: object, rows: Mapping[str, StoredTensor], path: Path) -> None:
    """Raise UserError where ids and trained rows of tokens do not belong to each other."""
    found = ids if isinstance(ids, list) else [] if ids is None else [ids]
    if not all(type(one) is int and one >= 0 for one in found) or len(set(found)) < len(found):
        raise UserError(f"{path}: {TOKEN_IDS}: found {ids!r}, allowed: a list of different ids.")
    if bool(found) != bool(rows) or any(
        one.shape[:-1] != (len(found),) or one.dtype not in FLOATS for one in rows.values()
    ):
        shapes = ", ".join(f"{name} {list(one.shape)}" for name, one in rows.items()) or "no rows"
        raise UserError(f"{path}: {TOKEN_IDS}: found {len(found)} ids and {shapes}. Copy the adapter again.")


def _require_targets(patterns: list[str], layers: Mapping[str, LoraLayer], path: Path) -> None:
    """Raise UserError where a layer has tensors that no pattern names: a model with the adapter leaves them out."""
    beyond = [layer for layer in layers if not any(re.fullmatch(pattern, layer) for pattern in patterns)]
    if beyond:
        raise UserError(
            f"{path}: target_modules: found {patterns}, but there are tensors of {beyond[0]}"
            f"{f' and {len(beyond) - 1} more' if len(beyond) > 1 else ''}, which they do not name."
        )


def target_modules(config: dict, path: Path) -> list[str]:
    """Return the patterns of the layers' names.

    Raises:
        UserError: If they are no such list.
    """
    targets = config.get("target_modules")
    targets = [targets] if isinstance(targets, str) else targets
    try:
        if not isinstance(targets, list):
            raise TypeError
        for pattern in targets:
            re.compile(pattern)
    except (TypeError, re.error):
        raise UserError(
            f"{path}: target_modules: found {targets!r}, allowed: a list of regular expressions of layers' names."
        ) from None
    return targets


def _tensors(directory: Path) -> dict[str, StoredTensor]:
    if (directory / INDEX).is_file():
        return read_indexed(directory / INDEX, lambda path: read_header(path)[0])
    if (directory / PDPARAMS).is_file():
        return read_pdparams(directory / PDPARAMS)
    raise UserError(f"{directory}: no adapter's weights: looked for {INDEX} and {PDPARAMS}.")


def _layers(directory: Path, tensors: dict[str, StoredTensor], rank: int, is_dora: bool) -> dict[str, LoraLayer]:
    """Return the tensors in pairs, those of a DoRA with their magnitudes.

    Raises UserError with the names of tensors without a partner or with another rank.
    """
    parts = (".lora_A", ".lora_B", *([".lora_magnitude"] if is_dora else []))
    misfits = Misfits(extra={name for name in tensors if not name.endswith(parts)})
    layers = {}
    for layer in dict.fromkeys(name.rpartition(".")[0] for name in tensors if name not in misfits.extra):
        names = [f"{layer}{part}" for part in parts]
        absent = {name for name in names if name not in tensors}
        if absent:
            misfits.missing |= absent
            continue
        a, b, *magnitude = found = [tensors[name] for name in names]
        if not (len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[0] == rank):
            misfits.different.add(difference(layer, f"{list(a.shape)} and {list(b.shape)}", f"rank {rank}"))
        elif magnitude and magnitude[0].shape != b.shape[1:]:
            misfits.different.add(difference(names[2], str(list(magnitude[0].shape)), str(list(b.shape[1:]))))
        for name, matrix in zip(names, found, strict=True):
            if matrix.dtype not in FLOATS:
                misfits.different.add(difference(name, matrix.dtype, "floating-point numbers"))
        layers[layer] = LoraLayer(*found)
    if misfits or not layers:
        raise UserError(f"{directory}: not a whole LoRA adapter: {misfits or 'no tensors'}")
    return layers

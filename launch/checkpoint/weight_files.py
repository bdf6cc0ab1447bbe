"""The tensors of a model directory, from the headers of its files: no tensor is read, and no Paddle needed.

    weights = find_weights("checkpoints/llama-7b")          # {"lm_head.weight": StoredTensor, ...}

Formats, in this order: safetensors and .pdparams, each as one file or as several with an index; a checkpoint of this
repository whose tensors are sharded over ranks.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from launch.checkpoint.manifest import MANIFEST, PARTIAL_MODEL, Manifest, examine, fault_of_files, stray_weights
from launch.checkpoint.parts import OPTIMIZER, ShardedTensor, sharded_weights
from launch.checkpoint.pdparams_reader import read_pdparams
from launch.checkpoint.safetensors_file import read_header
from launch.checkpoint.stored_tensor import StoredTensor
from launch.config.typed import typed
from launch.errors import UserError

# The names of paddlenlp/utils/env.py. The first that exists is read.
INDEX_FILES = ("model.safetensors.index.json", "model_state.pdparams.index.json")
WEIGHT_FILES = ("model.safetensors", "model_state.pdparams")
TORCH_FILES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
# What one rank of a tensor or pipeline parallel run of paddlenlp saves.
PART_PATTERN = "model_state.*.pdparams"
LISTED = 10  # names in a message

Weight = StoredTensor | ShardedTensor


def find_weights(directory: str | Path, share: tuple[int, int] | None = None) -> Mapping[str, Weight]:
    """Return the model's tensors by name.

    share: of `checked_manifest`.

    Raises:
        UserError: If there are none, where a file is missing, damaged or disagrees with the index, and where the
            files are in Hugging Face's layout.
    """
    directory = Path(directory)
    manifest = checked_manifest(directory, share)
    for index, single in zip(INDEX_FILES, WEIGHT_FILES, strict=True):
        if (directory / index).is_file():
            return read_indexed(directory / index, _read_file)
        if (directory / single).is_file():
            return _read_file(directory / single)
    if manifest and not manifest.trained_only:
        return sharded_weights(directory, manifest)
    raise UserError(_why_none(directory))


def checked_manifest(directory: Path, share: tuple[int, int] | None) -> Manifest | None:
    """Return the manifest of a checkpoint whose files agree with it; None where the directory has none.

    Args:
        directory: Of a model or an adapter.
        share: (rank, ranks) of the processes that read the values, and compare all bytes but the optimizer's; None
            compares names and sizes alone.

    Raises:
        UserError: If they do not agree.
    """
    if not (directory / MANIFEST).exists():
        return None
    manifest, fault = examine(directory, hashes=False)
    if manifest is None:
        raise UserError(f"{fault}.")
    if stray := stray_weights(directory, manifest):
        raise UserError(f"{stray}: move it elsewhere.")
    files = {name: facts for name, facts in manifest.files.items() if not name.startswith(f"{OPTIMIZER}-")}
    if share and (fault := fault_of_files(directory, files, True, share)):
        raise UserError(f"{fault}. Take another checkpoint, or copy it again.")
    return manifest


def read_indexed(index: Path, read_file: Callable[[Path], dict[str, StoredTensor]]) -> dict[str, StoredTensor]:
    """Return the tensors that an index lists, each from the file that it names.

    Raises:
        UserError: If one is missing.
    """
    try:
        places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        files = sorted(set(places.values()))
        elsewhere = [name for name in files if name != Path(name).name or name in ("", "..") or "\0" in name]
    except FileNotFoundError:
        raise UserError(f"{index}: no such file. Copy all files of one model again.") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserError(f"{index}: not an index of weights files: no 'weight_map'. Copy it again.") from None
    if elsewhere:
        raise UserError(f"{index}: found {elsewhere[0]!r}, allowed: names of files beside it. Copy it again.")
    missing = [name for name in files if not (index.parent / name).is_file()]
    if missing:
        raise UserError(f"{index.parent}: {listed(missing)} missing, of {len(files)} files in {index.name}. Copy them.")
    found = {name: read_file(index.parent / name) for name in files}
    strays = [tensor for tensor, file in places.items() if tensor not in found[file]]
    if strays:
        raise UserError(f"{index}: {listed(strays)} not in the files it names. Copy all files of one model again.")
    return {tensor: found[file][tensor] for tensor, file in places.items()}


def _read_file(path: Path) -> dict[str, StoredTensor]:
    if path.suffix == ".pdparams":
        return read_pdparams(path)
    tensors, metadata = read_header(path)
    if metadata.get("format") == "pt":
        raise UserError(_torch_layout(path))
    return tensors


def _why_none(directory: Path) -> str:
    for name in TORCH_FILES:
        if (directory / name).is_file():
            return _torch_layout(directory / name)
    if files := sorted(directory.glob("*.gguf")):
        return f"{files[0]}: the weights are in a GGUF file. Convert it first: make import MODEL={typed(files[0])}"
    parts = sorted(directory.glob(PART_PATTERN))
    if parts:
        return (
            f"{directory}: {parts[0].name} is one rank's part of a model ({len(parts)} such files). Give a directory "
            "with whole weights: train with --unified_checkpoint 1, which saves them."
        )
    if (directory / PARTIAL_MODEL).is_dir():
        return (
            f"{directory}: no weights: the run was ended while it wrote its model. Start it again, which trains "
            "nothing more and writes it, or give its newest checkpoint."
        )
    return f"{directory}: no weights: looked for {', '.join(WEIGHT_FILES)} and their index files."


def _torch_layout(path: Path) -> str:
    return (
        f"{path}: the weights are in Hugging Face's layout (torch's names, matrices transposed). "
        f"Convert them first: make import MODEL={typed(path.parent)}"
    )


def listed(names: list[str]) -> str:
    """Return the first LISTED names, and the number of all where that is more."""
    more = f", ... ({len(names)} in all)" if len(names) > LISTED else ""
    return ", ".join(map(str, names[:LISTED])) + more


# ---- do the tensors of the files fit a model?


# Tables that older versions saved with the weights; models compute them.
COMPUTED = (
    "rotary_emb.inv_freq",
    "rotary_embeddings.inv_freq",
    "rotary_pos_emb.inv_freq",
    "rotary_emb.cos_cached",
    "rotary_emb.sin_cached",
)


@dataclass
class Misfits:
    """Tensors that do not fit a model.

    Attributes:
        missing: Names that the files lack.
        extra: Names that the model lacks.
        different: Lines about other shapes or dtypes.
    """

    missing: set[str] = field(default_factory=set)
    extra: set[str] = field(default_factory=set)
    different: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.different)

    def __str__(self) -> str:
        kinds = (("missing", self.missing), ("not in the model", self.extra), ("different", self.different))
        return "; ".join(f"{kind}: {listed(sorted(found))}" for kind, found in kinds if found)


def is_computed(name: str) -> bool:
    """Return whether a tensor is a table that each model computes."""
    return name.endswith(COMPUTED)


def difference(name: str, found: str, expected: str) -> str:
    """Return a line about another shape or dtype."""
    return f"{name} (found {found}, expected {expected})"

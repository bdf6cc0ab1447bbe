"""The layout of checkpoints in an output directory, and the manifest that a whole one agrees with. No Paddle.

OUTPUT/checkpoint-20/                   whole: its manifest.json was written last, before it got this name
    manifest.json                       sizes and SHA-256 of all other files; what made them; its own SHA-256
    run.json                            step, schedule, loss scale: the same on all ranks
    rank-00000.json                     random numbers of each rank
    model-00001-of-00002.safetensors    parameters, each written by one of the ranks that have it
    optimizer-00001-of-00002.safetensors
OUTPUT/partial-checkpoint-20/           being written or removed, or interrupted while it was
OUTPUT/partial-model/                   the model of the run, likewise
OUTPUT/damaged-checkpoint-20/           does not agree with its manifest
"""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from launch.errors import UserError

FORMAT = 2
WITHOUT_DIGEST = 1  # the format of checkpoints whose manifest has neither a SHA-256 of its own nor `model`
MANIFEST, RUN = "manifest.json", "run.json"
CHECKPOINT = re.compile(r"checkpoint-(0|[1-9][0-9]*)")
PARTIAL, DAMAGED = "partial-", "damaged-"
PARTIAL_MODEL = PARTIAL + "model"
# A directory without any of these files has no model, or no adapter.
MODEL_FOUND_BY = ("model.safetensors.index.json", "model.safetensors")
ADAPTER_FOUND_BY = ("peft_model.safetensors.index.json",)


@dataclass(frozen=True)
class Manifest:
    """The contents of a checkpoint, and its origin.

    Attributes:
        files: Name -> {"bytes", "sha256"} of every other file.
        topology: The degree of each kind of parallelism and the sharding stage.
        trained_only: Whether frozen weights are left out.
        data, model: Their identities (data_ledger.py, model_identity.py).
    """

    files: dict[str, dict]
    global_step: int
    consumed_samples: int
    consumed_tokens: int
    topology: dict
    trained_only: bool = False
    data: dict = field(default_factory=dict)
    model: dict = field(default_factory=dict)
    arguments: dict = field(default_factory=dict)
    versions: dict = field(default_factory=dict)
    git_revision: str | None = None
    format: int = FORMAT

    def to_json(self) -> str:
        """Return the manifest as JSON, with its own SHA-256."""
        values = asdict(self)
        return json.dumps(values | {DIGEST: _digest(values)}, indent=1) + "\n"


def read_manifest(checkpoint: Path) -> Manifest:
    """Return the manifest of a checkpoint.

    Raises:
        UserError: If it is missing, damaged or of another format.
    """
    path = Path(checkpoint) / MANIFEST
    if not path.is_file():  # a FIFO would be waited for
        raise UserError(f"{checkpoint} is not whole: it has no {MANIFEST}, which is written last.")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise UserError(f"{path}: not a manifest: {error}.") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: not a manifest: no JSON object.")
    found = values.get("format")
    if found not in (FORMAT, WITHOUT_DIGEST):
        raise UserError(f"{path}: found format {found!r}, this version reads {WITHOUT_DIGEST} and {FORMAT}.")
    digest = values.pop(DIGEST, None) if found == FORMAT else _digest(values)
    wrong = sorted(values.keys() ^ _KEYS) if found == FORMAT else sorted(values.keys() - _KEYS)
    wrong = wrong or [key for key, is_allowed in _ALLOWED.items() if key in values and not is_allowed(values[key])]
    if wrong or not values.keys() >= _REQUIRED:
        raise UserError(f"{path}: not a manifest: {', '.join(wrong) or 'a key'} is missing, unknown or makes no sense.")
    if digest != _digest(values):
        raise UserError(f"{path} is not what was written: its SHA-256 differs from the one in it.")
    return Manifest(**values)


def _digest(values: dict) -> str:
    """Return the SHA-256 of all other values, independent of their order in the file."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def is_count(value: object) -> bool:
    """Return whether a value is a non-negative integer; a bool is none."""
    return type(value) is int and value >= 0


def _are_files(value: object) -> bool:
    return isinstance(value, dict) and all(
        name == Path(name).name
        and name not in ("", "..", MANIFEST)
        and "\0" not in name  # in the directory itself
        and isinstance(facts, dict)
        and facts.keys() == {"bytes", "sha256"}
        and is_count(facts["bytes"])
        and isinstance(facts["sha256"], str)
        for name, facts in value.items()
    )


DIGEST = "sha256"
_KEYS = {field.name for field in fields(Manifest)}
_ALLOWED: dict[str, Callable[[object], bool]] = {
    "files": _are_files,
    **dict.fromkeys(("global_step", "consumed_samples", "consumed_tokens"), is_count),
    "topology": lambda value: isinstance(value, dict) and is_count(value.get("processes")),
    "trained_only": lambda value: isinstance(value, bool),
    **dict.fromkeys(("data", "model", "arguments", "versions"), lambda value: isinstance(value, dict)),
    "git_revision": lambda value: value is None or isinstance(value, str),
}
_REQUIRED = {"files", "global_step", "consumed_samples", "consumed_tokens", "topology"}


def checkpoints(output: Path | str) -> list[Path]:
    """Return the directories in an output directory that have the name of a checkpoint, newest first."""
    paths = Path(output).iterdir() if Path(output).is_dir() else ()
    found = [path for path in paths if path.is_dir() and CHECKPOINT.fullmatch(path.name)]
    return sorted(found, key=checkpoint_step, reverse=True)


def is_ours(checkpoint: Path | str) -> bool:
    """Return whether a checkpoint has a manifest of ours."""
    return (Path(checkpoint) / MANIFEST).is_file()


def checkpoint_name(global_step: int) -> str:
    """Return the name of a step's checkpoint."""
    return f"checkpoint-{global_step}"


def checkpoint_step(checkpoint: Path) -> int:
    """Return the step of one of `checkpoints`, by its name."""
    match = CHECKPOINT.fullmatch(checkpoint.name)
    assert match
    return int(match[1])


def rank_file(rank: int) -> str:
    """Return the name of a rank's file."""
    return f"rank-{rank:05d}.json"


def tensor_file(kind: str, rank: int, ranks: int) -> str:
    """Return the name of a rank's file of tensors. kind: "model" or "optimizer"."""
    return f"{kind}-{rank + 1:05d}-of-{ranks:05d}.safetensors"


# ---- does a checkpoint agree with its manifest?


CHUNK_BYTES = 1 << 24
WEIGHT_SUFFIXES = (".safetensors", ".pdparams", ".bin", ".index.json")  # what readers of models look for


def first_fault(checkpoint: Path, hashes: bool = True, share: tuple[int, int] = (0, 1)) -> str | None:
    """Return the first file that does not agree with the manifest, and how; None where all do.

    Args:
        checkpoint: Its directory.
        hashes: Compare every byte, not only the sizes.
        share: (rank, ranks); each rank checks other files.
    """
    return examine(checkpoint, hashes, share)[1]


def examine(
    checkpoint: Path, hashes: bool = True, share: tuple[int, int] = (0, 1)
) -> tuple[Manifest | None, str | None]:
    """Return the manifest of a checkpoint and None, or None and its `first_fault`."""
    try:
        manifest = read_manifest(checkpoint)
    except UserError as error:
        return None, str(error).rstrip(".")
    fault = fault_of_files(checkpoint, manifest.files, hashes, share) or _wrong_step(checkpoint, manifest)
    return (None, fault) if fault else (manifest, None)


def fault_of_files(checkpoint: Path, files: dict[str, dict], hashes: bool, share: tuple[int, int]) -> str | None:
    """Return the first of some files of a manifest that differs from it, and how; arguments as of first_fault."""
    rank, ranks = share
    largest_first = sorted(files.items(), key=lambda item: (-item[1]["bytes"], item[0]))
    for name, expected in largest_first[rank::ranks]:
        path = checkpoint / name
        if not path.is_file():
            return f"{path} is missing"
        found = path.stat().st_size
        if found != expected["bytes"]:
            return f"{path} has {found:,} bytes, the manifest says {expected['bytes']:,}"
        if hashes and sha256(path) != expected["sha256"]:
            return f"{path} is not what was written: its SHA-256 differs from the manifest's"
    return None


def _wrong_step(checkpoint: Path, manifest: Manifest) -> str | None:
    """Compare the step with the directory's name and with run.json: old manifests have no SHA-256 of their own."""
    step = manifest.global_step
    if CHECKPOINT.fullmatch(checkpoint.name) and checkpoint_step(checkpoint) != step:
        return f"{checkpoint} is the checkpoint of step {step:,} by its manifest, not of the step in its name"
    try:
        run = json.loads((checkpoint / RUN).read_text(encoding="utf-8")) if RUN in manifest.files else {}
        written = run.get("global_step", step)
    except (OSError, ValueError, RecursionError, AttributeError) as error:
        return f"{checkpoint / RUN}: not the state of a run: {error}"
    return None if written == step else f"{checkpoint / RUN} is of step {written}, the manifest says {step:,}"


def stray_weights(checkpoint: Path, manifest: Manifest) -> str | None:
    """Return the first weights file that the run did not write, and that a reader of models would read.

    The ._ files that macOS adds on some disks are left out: nothing reads them.
    """
    for path in sorted(checkpoint.iterdir()):
        if path.name.endswith(WEIGHT_SUFFIXES) and path.name not in manifest.files and not path.name.startswith("._"):
            return f"{path} is not among the files of the checkpoint's manifest"
    return None


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(CHUNK_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def is_foreign(checkpoint: Path) -> bool:
    """Return whether upstream's Trainer wrote a checkpoint."""
    return not (checkpoint / MANIFEST).is_file() and (checkpoint / "trainer_state.json").is_file()

"""Where checkpoints lie in an output directory, and the manifest that makes one of them whole. No Paddle.

    OUTPUT/checkpoint-20/                   whole: its manifest.json was written last, before it got this name
        manifest.json                       sizes and SHA-256 of all other files; what made them
        run.json                            step, schedule, loss scale: the same on all ranks
        rank-00000.json                     random numbers of each rank
        model-00001-of-00002.safetensors    parameters, each written by one of the ranks that hold it
        optimizer-00001-of-00002.safetensors
    OUTPUT/partial-checkpoint-20/           being written or removed, or left so by a kill
    OUTPUT/damaged-checkpoint-20/           did not agree with its manifest
"""

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

from launch.errors import UserError

FORMAT = 1
MANIFEST, RUN = "manifest.json", "run.json"
CHECKPOINT = re.compile(r"checkpoint-(\d+)")
PARTIAL, DAMAGED = "partial-", "damaged-"


@dataclass(frozen=True)
class Manifest:
    """files: name -> {"bytes", "sha256"} of every other file. topology: degrees of each kind of parallelism and the
    sharding stage. trained_only: whether weights that are not trained are left out. data: what identifies the data."""

    files: dict[str, dict]
    global_step: int
    consumed_samples: int
    consumed_tokens: int
    topology: dict
    trained_only: bool = False
    data: dict = field(default_factory=dict)
    arguments: dict = field(default_factory=dict)
    versions: dict = field(default_factory=dict)
    git_revision: str | None = None
    format: int = FORMAT

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


def read_manifest(checkpoint: Path) -> Manifest:
    """Raises UserError where it is missing, damaged or of another format."""
    path = Path(checkpoint) / MANIFEST
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        found = values["format"]
        if found != FORMAT:
            raise UserError(f"{path}: found format {found}, this version reads {FORMAT}.")
        return Manifest(**values)
    except FileNotFoundError:
        raise UserError(f"{checkpoint} is not whole: it has no {MANIFEST}, which is written last.") from None
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise UserError(f"{path}: not a manifest: {error}.") from None


def checkpoints(output: Path | str) -> list[Path]:
    """The checkpoints in an output directory by name alone, newest first."""
    found = [path for path in _listed(output) if CHECKPOINT.fullmatch(path.name)]
    return sorted(found, key=checkpoint_step, reverse=True)


def is_ours(checkpoint: Path | str) -> bool:
    return (Path(checkpoint) / MANIFEST).is_file()


def checkpoint_name(global_step: int) -> str:
    return f"checkpoint-{global_step}"


def checkpoint_step(checkpoint: Path) -> int:
    """Of one of `checkpoints`, by its name."""
    return int(CHECKPOINT.fullmatch(checkpoint.name)[1])


def rank_file(rank: int) -> str:
    return f"rank-{rank:05d}.json"


def tensor_file(kind: str, rank: int, ranks: int) -> str:
    """kind: "model" or "optimizer"."""
    return f"{kind}-{rank + 1:05d}-of-{ranks:05d}.safetensors"


def _listed(directory: Path | str) -> list[Path]:
    directory = Path(directory)
    return [path for path in directory.iterdir() if path.is_dir()] if directory.is_dir() else []

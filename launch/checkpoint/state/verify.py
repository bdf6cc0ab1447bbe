"""Does a checkpoint agree with its manifest? What does not is moved aside. No Paddle."""

import hashlib
import os
import shutil
from pathlib import Path

from launch.checkpoint.state.manifest import MANIFEST, PARTIAL, read_manifest
from launch.errors import UserError

PIECE = 1 << 24


def first_fault(checkpoint: Path, hashes: bool = True, share: tuple[int, int] = (0, 1)) -> str | None:
    """The first file that does not agree with the manifest, and how; None where all do.

    hashes: read every byte, not only the sizes. share: (rank, ranks), which look at different files.
    """
    try:
        files = read_manifest(checkpoint).files
    except UserError as error:
        return str(error)
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


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def is_foreign(checkpoint: Path) -> bool:
    """Whether upstream's Trainer wrote it."""
    return not (checkpoint / MANIFEST).is_file() and (checkpoint / "trainer_state.json").is_file()


def move_aside(checkpoint: Path, prefix: str) -> Path:
    """Rename X to PREFIX-X, or with the first number behind it that is free; the new path."""
    aside, number = checkpoint.with_name(prefix + checkpoint.name), 1
    while aside.exists():
        number += 1
        aside = checkpoint.with_name(f"{prefix}{checkpoint.name}.{number}")
    os.rename(checkpoint, aside)
    return aside


def remove_partial(output: Path) -> None:
    """Remove what a kill left of saves: it was never a checkpoint."""
    for directory in Path(output).glob(f"{PARTIAL}checkpoint-*"):
        shutil.rmtree(directory, ignore_errors=True)

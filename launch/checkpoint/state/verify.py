"""Is a checkpoint what its manifest says, and which one does a run go on with? No Paddle."""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path

from launch.checkpoint.state.manifest import (
    ADAPTER_FOUND_BY,
    CHECKPOINT,
    MANIFEST,
    MODEL_FOUND_BY,
    PARTIAL,
    PARTIAL_MODEL,
    RUN,
    Manifest,
    checkpoint_step,
    checkpoints,
    read_manifest,
)
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.families.tokenizer_files import fresh_vocabulary

PIECE = 1 << 24
LEFT_BY_A_KILL = re.compile(rf"{PARTIAL}checkpoint-[0-9]+|{PARTIAL_MODEL}|.+\.partial-[0-9a-f]{{12}}")
FILES = (*MODEL_FOUND_BY, *ADAPTER_FOUND_BY, "config.json", "lora_config.json", "train_log.jsonl", "run_summary.json")
WEIGHTS = (".safetensors", ".pdparams", ".bin", ".index.json")  # ends of names that readers of models look for


def first_fault(checkpoint: Path, hashes: bool = True, share: tuple[int, int] = (0, 1)) -> str | None:
    """The first file that does not agree with the manifest, and how; None where all do.

    hashes: read every byte, not only the sizes. share: (rank, ranks), which look at different files.
    """
    try:
        manifest = read_manifest(checkpoint)
    except UserError as error:
        return str(error).rstrip(".")
    rank, ranks = share
    largest_first = sorted(manifest.files.items(), key=lambda item: (-item[1]["bytes"], item[0]))
    for name, expected in largest_first[rank::ranks]:
        path = checkpoint / name
        if not path.is_file():
            return f"{path} is missing"
        found = path.stat().st_size
        if found != expected["bytes"]:
            return f"{path} has {found:,} bytes, the manifest says {expected['bytes']:,}"
        if hashes and sha256(path) != expected["sha256"]:
            return f"{path} is not what was written: its SHA-256 differs from the manifest's"
    return _wrong_step(checkpoint, manifest)


def _wrong_step(checkpoint: Path, manifest: Manifest) -> str | None:
    """By the directory's name and by the state of the run, which a manifest without a SHA-256 of its own needs."""
    step = manifest.global_step
    if CHECKPOINT.fullmatch(checkpoint.name) and checkpoint_step(checkpoint) != step:
        return f"{checkpoint} is the checkpoint of step {step:,} by its manifest, not of the step in its name"
    try:
        run = json.loads((checkpoint / RUN).read_text(encoding="utf-8")) if RUN in manifest.files else {}
        written = run.get("global_step", step)
    except (OSError, ValueError, RecursionError, AttributeError) as error:
        return f"{checkpoint / RUN}: not the state of a run: {error}"
    return None if written == step else f"{checkpoint / RUN} is of step {written}, the manifest says {step:,}"


def stray_weights(checkpoint: Path) -> str | None:
    """A file that a reader of models would take for one of a whole checkpoint, though the run did not write it: the
    checkpoint is as it was. Not those that macOS adds to every file on some disks: nothing reads them."""
    written = read_manifest(checkpoint).files
    for path in sorted(checkpoint.iterdir()):
        if path.name.endswith(WEIGHTS) and path.name not in written and not path.name.startswith("._"):
            return f"{path} is not among the files of the checkpoint's manifest"
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
    """Remove what a kill left of saves and of files written aside: it was never whole. For who holds the output."""
    for path in left_by_a_kill(output):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def left_by_a_kill(output: Path) -> list[Path]:
    """What is removed when a run starts. Files by the names of our directories are no saves of ours."""
    found = [path for path in Path(output).glob("*") if LEFT_BY_A_KILL.fullmatch(path.name)]
    return [path for path in found if path not in in_the_way(output)]


def in_the_way(output: Path) -> list[Path]:
    """Files where the run makes directories, and directories where it writes files."""
    found = []
    for path in sorted(Path(output).glob("*")):
        is_checkpoint = CHECKPOINT.fullmatch(path.name.removeprefix(PARTIAL))
        if (
            path.is_file()
            and not path.is_symlink()
            and (is_checkpoint or path.name == PARTIAL_MODEL)
            or path.is_dir()
            and path.name in FILES
        ):
            found.append(path)
    return found


# ---- what a run goes on with, by its flags alone


AUTO, NONE = "auto", "none"  # of --resume_from_checkpoint, beside a path


def newest_whole(output: str | Path) -> Path | None:
    """The newest checkpoint of an output directory whose files have the sizes of its manifest."""
    return next((one for one in checkpoints(output) if first_fault(one, hashes=False) is None), None)


def continued(values) -> Path | None:
    """The checkpoint whose weights a run takes; None where it starts without. values: the flags, as attributes.

    A named one that is not whole counts as none: the check of the continuation tells it.
    """
    wanted = values.resume_from_checkpoint or NONE
    if not values.do_train or wanted == NONE or (wanted == AUTO and values.overwrite_output_dir):
        return None
    if wanted == AUTO:
        return newest_whole(values.output_dir) if values.output_dir else None
    return Path(wanted) if first_fault(Path(wanted), hashes=False) is None else None


def run_config(values) -> dict:
    """The configuration of a run's model, as a dictionary, with the vocabulary of its tokenizer or of its checkpoint.

    values: the flags by their names, as attributes. Raises UserError where there is no such model.
    """
    config = load_config(values.model_name_or_path or "")
    size = fresh_vocabulary(config, values, vocabulary_so_far(continued(values), config))
    return config if size is None else config | {"vocab_size": size}


def vocabulary_so_far(checkpoint: Path | None, config: dict) -> int | None:
    """vocab_size of the model in a checkpoint. One that does not state its model was made when fresh models had the
    vocabulary of their configuration."""
    if checkpoint is None:
        return None
    return read_manifest(checkpoint).model.get("config", {}).get("vocab_size", config["vocab_size"])

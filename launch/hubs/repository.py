"""A model's repository at a hub: what it lists, and which of its files a model needs.

Only what is named here is fetched: weights in safetensors, the configuration, the tokenizer and the licence. A pickle
(.bin, .pt) may run any program when it is loaded, and so may the Python files beside a model: none of them is fetched.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from launch.errors import UserError
from launch.families.family import Family
from launch.weights.model_directories import CONFIG, GENERATION, LICENCE
from launch.weights.peft import CONFIG as ADAPTER

REPOSITORY = re.compile(r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
WEIGHTS = re.compile(r"[A-Za-z0-9_][\w.-]*\.safetensors", re.ASCII)
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pdparams")
# Of tokenizers of every family, as launch/weights/tokenizer.py reads them; a family adds its own.
TOKENIZER = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "tokenizer.model", "sentencepiece.bpe.model", "spiece.model"),
    *("chat_template.jinja", "chat_template.json"),
)
LARGEST_LICENCE = 1_000_000  # bytes
LARGEST_FIRST = 64_000_000  # of a configuration or an index, which are read before the disk is looked at


@dataclass(frozen=True)
class RemoteFile:
    """A file in the folder of a repository.

    Attributes:
        sha256: Of its content; "" where the hub does not state it.
        git_sha1: Its name as an object of git, which hubs give for small files; else "".
    """

    name: str
    size: int
    sha256: str = ""
    git_sha1: str = ""

    def __post_init__(self):
        """Raise ValueError for what is no answer of a hub."""
        texts = (self.name, self.sha256, self.git_sha1)
        if not all(isinstance(text, str) for text in texts) or type(self.size) is not int or self.size < 0:
            raise ValueError("not a file")


@dataclass(frozen=True)
class Snapshot:
    """A repository at one revision.

    Attributes:
        hub: The value of FROM.
        revision: As requested, "" for the hub's default.
        commit, licence: "" where the hub does not give them.
    """

    hub: str
    repository: str
    revision: str
    commit: str
    licence: str
    files: dict[str, RemoteFile]

    def present(self, names: Iterable[str]) -> list[RemoteFile]:
        """Return the files of these names that the repository has."""
        return [self.files[name] for name in names if name in self.files]


def check_repository(repository: str) -> str:
    """Return the folder's name that a model gets.

    Raises:
        UserError: For a text that is no OWNER/NAME: the name becomes a path.
    """
    if not REPOSITORY.fullmatch(repository):
        raise UserError(
            f"MODEL: found {repository!r}, allowed: OWNER/NAME as the hub's page has it, such as Qwen/Qwen3-8B."
        )
    return repository.partition("/")[2]


def own_files(repository: str, files: Iterable[RemoteFile]) -> dict[str, RemoteFile]:
    """Return by name the files in the repository's folder itself: no model needs its subfolders.

    Raises:
        UserError: For a name that leads out of the folder: no repository has one by accident.
    """
    found = {}
    for file in files:
        parts = file.name.split("/")
        if not file.name.isprintable() or "\\" in file.name or not all(parts) or {".", ".."} & {*parts}:
            raise UserError(
                f"{repository}: lists a file {file.name!r}, which may lead out of its folder. Nothing was fetched. Do "
                "not trust this repository."
            )
        if len(parts) == 1:
            found[file.name] = file
    return found


def first_files(snapshot: Snapshot) -> list[RemoteFile]:
    """Return the configuration, and the index of the weights where there are several files: they name the others.

    Raises:
        UserError: For a repository that is not a model with weights in safetensors.
    """
    files, place = snapshot.files, snapshot.repository
    if CONFIG not in files and ADAPTER in files:
        raise UserError(
            f"{place}: a LoRA adapter, not a model. Fetch the folder with the hub's own client, then: make import "
            'MODEL=FOLDER ARGS="--base IMPORTED_MODEL".'
        )
    if CONFIG not in files:
        raise UserError(f"{place}: no {CONFIG}: found {_some(files)}. Name a model in Hugging Face's layout.")
    pickles = [name for name in files if name.endswith(PICKLES)]
    if SINGLE not in files and INDEX not in files:
        if pickles:
            raise UserError(
                f"{place}: its weights are pickles ({_some(pickles)}), which may run any program when they are loaded. "
                "Only safetensors are fetched. Name a repository of the model that has them, or a revision: "
                '--revision "refs/pr/1" is where Hugging Face often proposes them. Files that you have: make import '
                "MODEL=FOLDER, which runs nothing of theirs."
            )
        raise UserError(f"{place}: no {SINGLE} and no {INDEX}: found {_some(files)}. Name a model in safetensors.")
    found = snapshot.present([CONFIG] if SINGLE in files else [CONFIG, INDEX])
    if large := [file for file in found if file.size > LARGEST_FIRST]:
        raise UserError(
            f"{place}: {large[0].name}: found {large[0].size:,} bytes, allowed: {LARGEST_FIRST:,}. Do not trust this "
            "repository."
        )
    return found


def needed_files(snapshot: Snapshot, family: Family, directory: Path, only_config: bool) -> list[RemoteFile]:
    """Return the files that the import of a model of this family reads, and its licences, small ones first.

    Args:
        snapshot: Of the repository.
        family: Of the model.
        only_config: Without the weights.
        directory: Of the first files.

    Raises:
        UserError: If the index is damaged or names a missing file.
    """
    own = family.published.tokenizer
    names = [CONFIG, GENERATION, *TOKENIZER, *((own.sentencepiece or ())[:1]), *own.copied]
    for file in snapshot.files.values():
        if LICENCE.fullmatch(file.name) and file.size <= LARGEST_LICENCE:
            names.append(file.name)
    found = snapshot.present(dict.fromkeys(names))
    if only_config:
        return found
    if SINGLE in snapshot.files:
        return [*found, snapshot.files[SINGLE]]
    shards = _shards(directory / INDEX)
    if missing := [name for name in shards if name not in snapshot.files]:
        raise UserError(f"{snapshot.repository}: {INDEX} names {_some(missing)}, which the hub does not list.")
    return [*found, *snapshot.present([INDEX, *shards])]


def weight_bytes(files: Iterable[RemoteFile]) -> int:
    """Return the bytes of the weights."""
    return sum(file.size for file in files if WEIGHTS.fullmatch(file.name))


def _shards(index: Path) -> list[str]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserError(f"{index}: not an index of weights files: no 'weight_map'. Tell the model's owner.") from None
    if wrong := [name for name in names if not isinstance(name, str) or not WEIGHTS.fullmatch(name)]:
        raise UserError(
            f"{index}: names {wrong[0]!r}, allowed: .safetensors files beside it. Do not trust this repository."
        )
    return names


def _some(names: Iterable[str]) -> str:
    """Return the first names, and how many more there are."""
    names = sorted(names)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more if names else "no files"

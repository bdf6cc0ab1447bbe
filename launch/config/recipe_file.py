r"""The one reader of recipe files. It needs Python alone, so that make lists recipes before anything is installed.

    recipe = Recipe.load(Path("recipes/llama-7b/pretrain.sh"))
    recipe.target, recipe.gpus, recipe.flags["max_seq_length"]   # "pretrain-llama7b", 8, ["2048"]

A recipe file is a shell script of this form, and whatever else it says is refused with its line:

    #!/usr/bin/env bash
    # LLaMA-7B pretraining on eight cards.                    the summary
    # Hardware   8 cards of 80 GB                             entries; a further line of one is indented
    # Target     another name than <file>-<folder>
    # Alias      a further name
    source "$(dirname "$0")/../../launch/recipe.sh"
    GPUS=8 GPU_MEMORY_GB=80                                   on a CPU: PROCESSES=2

    run launch/run_pretrain.py \
        --max_seq_length 2048 \
        "$@"

What several recipes have in common is in the file of a method, recipes/methods/NAME.sh: entries of the header and
`run`, nothing else. A recipe that says `run recipes/methods/NAME.sh` has these, and its own entries and flags win: also
where one of the two has a flag by its name in PaddleNLP's scripts (launch/config/aliases.py).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from launch.config.aliases import todays_flags
from launch.config.flag_values import Flags, overridden, parse_flags
from launch.errors import UserError
from launch.methods.registry import METHODS, find_method

NEEDS = ("GPUS", "GPU_MEMORY_GB", "PROCESSES")
USERS_FLAGS = '"$@"'
ROOT = Path(__file__).resolve().parents[2]
COMMON = "methods"  # the folder of recipes/ whose files are no recipes

_ENTRY = re.compile(r"# ([A-Z]\w+(?: \w+)?)  +(\S.*)")
_NAME_ENTRY = re.compile(r"#\s*(Target|Alias)\s+(\S.*?)\s*")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")  # what make takes as the name of a target
_SOURCE = re.compile(r"(?:source|\.)\s+.*launch/recipe\.sh\"?")
# A word that a shell takes as it stands: plain letters, '...', and "..." without $, ` and backslashes.
_WORD = re.compile(r"""(?:[^\s'"$`\\;&|<>()*?\[\]{}~!#]|(?<=[^\s])\#|'[^']*'|"[^"$`\\]*")+""")


@dataclass(frozen=True)
class Recipe:
    """A recipe file.

    Attributes:
        header: Its entries, {"Hardware": "8 cards of 80 GB", ...}, each in one line.
        flags: By today's names.
        gpus: Cards it is made for, 0 for a CPU.
        gpu_memory_gb: Of each card.
        processes: Ranks on a CPU.
        method: The file with the flags and entries that it lacks, None without one.
        renamed: A line for each flag that had another name.
    """

    path: Path
    summary: str
    header: dict[str, str]
    script: str
    flags: Flags
    gpus: int
    gpu_memory_gb: int
    processes: int
    method: Path | None = None
    renamed: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: Path) -> "Recipe":
        """Return the recipe of a file.

        Raises:
            UserError: With file and line, for what it cannot read.
        """
        header, needs, script, flags = _read(_Lines(path))
        flags, renamed = todays_flags(flags)
        method = ROOT / script if Path(script).suffix == ".sh" else None
        if method:
            common, _, script, further = _read(_Lines(method, of_method=True))
            header |= {name: text for name, text in common.items() if name not in header}
            further, lines = todays_flags(further)
            flags, renamed = flags | overridden(further, flags), [*renamed, *lines]
        return cls(
            path=path,
            summary=header.pop("").removesuffix("."),
            header=header,
            script=script,
            flags=flags,
            gpus=needs.get("GPUS", 0),
            gpu_memory_gb=needs.get("GPU_MEMORY_GB", 0),
            processes=needs.get("PROCESSES", 1),
            method=method,
            renamed=tuple(renamed),
        )

    @property
    def target(self) -> str:
        """Its name in the Makefile."""
        return self.header.get("Target") or target_of(self.path)

    @property
    def alias(self) -> str:
        """A further name in the Makefile, or ""."""
        return self.header.get("Alias", "")

    @property
    def name(self) -> str:
        """The name, such as llama-7b/pretrain."""
        return f"{self.path.parent.name}/{self.path.stem}"

    @property
    def ranks(self) -> int:
        """Processes that the recipe is made for: one a card, or the ranks on a CPU."""
        return self.gpus or self.processes


def recipe_paths(root: Path) -> list[Path]:
    """Return the recipe files of a repository, without the files of methods."""
    return sorted(path for path in root.glob("recipes/*/*.sh") if path.parent.name != COMMON)


def load_recipes(root: Path) -> list[Recipe]:
    """Return every recipe of a repository, in the order of their files."""
    return [Recipe.load(path) for path in recipe_paths(root)]


def target_of(path: Path) -> str:
    """Return the target of a file that names none: pretrain-llama7b for llama-7b/pretrain.sh."""
    return f"{path.stem}-{path.parent.name.replace('-', '')}"


class _Lines:
    """The lines of a file, with the number of the last one read. of_method: the file is a method's, not a recipe."""

    def __init__(self, path: Path, of_method: bool = False):
        self.path, self.of_method, self.number = path, of_method, 0
        try:
            self._lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: this recipe cannot be read: {error}") from None

    def __iter__(self) -> Iterator[str]:
        while self.number < len(self._lines):
            self.number += 1
            yield self._lines[self.number - 1]

    def __len__(self) -> int:
        return len(self._lines)

    def following(self) -> str:
        """Return the next line; "" at the end or where it is no part of the header."""
        return self._lines[self.number] if self.number < len(self._lines) else ""

    def refuse(self, found: str, allowed: str) -> NoReturn:
        line = max(self.number, 1)
        if self.of_method:
            raise UserError(f"{self.path}, line {line}: {found}. Allowed in the file of a method: {allowed}.")
        raise UserError(f"{self.path}, line {line}: {found}. Allowed in a recipe: {allowed}.")


def _read(lines: _Lines) -> tuple[dict[str, str], dict[str, int], str, Flags]:
    """Return the header, the needs, the argument of `run` and its flags.

    The file of a method needs nothing and runs no other.
    """
    header = _header(lines)
    needs: dict[str, int] = {}
    script, flags = "", None
    for line in lines:
        words = line.split()
        if not words or words[0].startswith("#") or (_SOURCE.fullmatch(line.strip()) and not lines.of_method):
            continue
        if flags is not None:
            lines.refuse("found something behind `run`, which takes the script's place", "nothing behind it")
        if words[0] == "run":
            script, flags = _command(lines, line)
        elif lines.of_method:
            lines.refuse(f"found {words[0]!r}", "comments on lines of their own and `run`")
        else:
            needs |= _needs(lines, words)
    if flags is None:
        lines.refuse("found no `run`", f"run launch/SCRIPT.py --flag value {USERS_FLAGS}, the last command")
    return header, needs, script, flags


def _header(lines: _Lines) -> dict[str, str]:
    """Return {"": the summary, "Hardware": ...}: the comment at the top, without the line "#!"."""
    entries, key = {"": ""}, ""
    if lines.following().startswith("#!"):
        next(iter(lines))
    while lines.following().startswith("#"):
        line = next(iter(lines))
        if name := _NAME_ENTRY.fullmatch(line):
            if lines.of_method:
                lines.refuse(
                    f"found {name[1]} {name[2]!r}", "entries of all its recipes, which have names of their own"
                )
            if not _NAME.fullmatch(name[2]):
                lines.refuse(
                    f"found {name[1]} {name[2]!r}", "letters, digits, `-`, `_` and `.` in the name of a target"
                )
            entries[name[1]] = name[2]
            continue
        entry = _ENTRY.fullmatch(line) if entries[""] else None
        key, text = entry.groups() if entry else (key, line.lstrip("# "))
        entries[key] = f"{entries[key]} {text}" if entries.get(key) else text
    return entries


def _needs(lines: _Lines, words: list[str]) -> dict[str, int]:
    """Return {"GPUS": 8, "GPU_MEMORY_GB": 80} of GPUS=8 GPU_MEMORY_GB=80."""
    needs = {}
    for word in words:
        found = re.fullmatch(r"(\w+)=([0-9]+)", word)
        if found is None or found[1] not in NEEDS:
            lines.refuse(f"found {word!r}", f"comments on lines of their own, {'=N, '.join(NEEDS)}=N and `run`")
        if word == "PROCESSES=0":
            lines.refuse(f"found {word!r}", "PROCESSES=1 or more")
        needs[found[1]] = int(found[2])
    return needs


def _command(lines: _Lines, first: str) -> tuple[str, Flags]:
    """Return the script and the flags of `run SCRIPT --flag value "$@"`, which a backslash continues."""
    words, line = [], first
    while True:
        continued = line.endswith("\\")
        if not continued and line.rstrip().endswith("\\"):
            lines.refuse("found a blank behind the backslash, which ends the command", "a backslash at the end")
        words += _words(lines, line.removesuffix("\\"))
        if not continued:
            break
        if lines.number == len(lines):
            lines.refuse("found the end of the file behind a backslash", "a backslash before another line alone")
        line = next(iter(lines))
    if words.pop() != USERS_FLAGS:
        lines.refuse("found the end of `run` without the user's flags", f"{USERS_FLAGS} as its last word")
    named = 1 if words[1:2] == ["launch/train.py"] else 0  # its method is the next word
    script, flags = words[1 + named : 2 + named], words[2 + named :]
    allowed = [method.program for method in METHODS]
    if not lines.of_method:
        allowed += [f"recipes/{COMMON}/{path.name}" for path in sorted((ROOT / "recipes" / COMMON).glob("*.sh"))]
    path = ROOT / "".join(script)  # of a method's file: from the repository's root or from `/`
    is_method = path.suffix == ".sh" and path.parent.name == COMMON and path.is_file()
    if not script or not (find_method(script[0]) or (is_method and not lines.of_method)):
        lines.refuse(
            f"found run {' '.join(words[1 : 2 + named])}".rstrip(), " or ".join(f"run {file}" for file in allowed)
        )
    try:
        return script[0], parse_flags(flags)
    except UserError as error:
        raise UserError(f"{lines.path}, line {lines.number}: {error}") from None


def _words(lines: _Lines, text: str) -> list[str]:
    """Return the words of a line as a shell has them, "$@" unchanged."""
    words, rest = [], text.strip()
    while rest:
        if rest == USERS_FLAGS:
            return [*words, USERS_FLAGS]
        found = _WORD.match(rest)
        behind = rest[found.end() :] if found else rest
        if found is None or behind[:1].strip():
            lines.refuse(
                f"found {rest!r}, which a shell would read as more than a word",
                f"--flag value, '...' around signs of the shell, {USERS_FLAGS} at the end",
            )
        words.append(re.sub(r"""'([^']*)'|"([^"]*)\"""", lambda quoted: quoted[1] or quoted[2] or "", found[0]))
        rest = behind.lstrip()
    return words

"""The commands of a page, taken out of its blocks of code and its sentences."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from docs.tools.pages import read
from tests.docs.pages import CODE, COMMENT, FENCED, INDENTED

PYTHON = ("python", ".venv/bin/python")
# What a block of commands without a language begins with; others show what a program printed, or a file.
BEGINS = re.compile(r"\s*(\$ |!|%|make |(\.venv/bin/)?(python|pip) |cd |nvcc )")
HERE_DOCUMENT = re.compile(r"<<'(\w+)'\n.*?\n\1\n", re.S)
ASSIGNMENT = re.compile("[A-Za-z_]+=")


@dataclass(frozen=True)
class Command:
    """words: without the variables before it and what its output is sent to."""

    page: str
    words: tuple[str, ...]

    @property
    def program(self) -> str:
        """make TARGET; launch/X.py, also where the launcher starts it; python -m MODULE; else the first word."""
        first, *rest = self.words
        if first == "make":
            return f"make {rest[0]}" if rest else "make"
        if first not in PYTHON:
            return first
        files = [word for word in rest if word.endswith(".py")]
        if rest[:1] == ["-m"] and rest[1] != "paddle.distributed.launch":
            return f"python -m {rest[1]}"
        return files[0].removeprefix("REPOSITORY/") if files else first

    @property
    def variables(self) -> dict[str, str]:
        """Of make: {"GPUS": "4", ...}"""
        return dict(word.split("=", 1) for word in self.words[2:]) if self.words[0] == "make" else {}

    @property
    def flags(self) -> set[str]:
        """That its program gets: those of ARGS, or those behind its name."""
        if self.words[0] == "make":
            words = shlex.split(self.variables.get("ARGS", ""))
        else:
            start = next((n for n, word in enumerate(self.words) if word.endswith(".py")), 0)
            words = self.words[start:]
        return {word.partition("=")[0] for word in words if re.match("--[a-z]", word)}

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def in_blocks(page: Path) -> list[Command]:
    """In order, those of a pipe each by itself. Blocks of other languages than the shell's are not looked into."""
    found = []
    text = read(page)
    for block in sorted([*FENCED.finditer(text), *INDENTED.finditer(text)], key=lambda match: match.start()):
        language, body = block.groups() if block.re is FENCED else ("", block[0])
        if language in ("sh", "bash") or (not language and BEGINS.match(body)):
            found += [Command(page.stem, words) for words in _commands(body)]
    return found


def in_prose(page: Path) -> list[Command]:
    """Code in sentences and tables that begins as a command of ours does."""
    text = INDENTED.sub("", FENCED.sub("", read(page)))
    spans = [" ".join(code.split()) for code in CODE.findall(text)]
    own = [span for span in spans if re.match(r"(make|(\.venv/bin/)?python) [a-zA-Z-]", span)]
    return [Command(page.stem, words) for span in own for words in _commands(span)]


def _commands(body: str) -> list[tuple[str, ...]]:
    for name, value in re.findall(r'^(?:\$ )?([a-z]+)="(.*)"$', body, re.M):
        body = body.replace(f'"${name}"', f'"{value}"')
    lines = COMMENT.sub("", HERE_DOCUMENT.sub("\n", re.sub(r"\\\n", "", body))).splitlines()
    if any(line.lstrip().startswith("$ ") for line in lines):  # what the others show was printed
        lines = [line.lstrip()[2:] for line in lines if line.lstrip().startswith("$ ")]
    return [words for line in "\n".join(lines).replace("|\n", "| ").splitlines() for words in _of_line(line)]


def _of_line(line: str) -> list[tuple[str, ...]]:
    """Its commands, without [...] around what may be left out."""
    line = re.sub(r"\[(\w+=[^\]]*)\]", r"\1", line.strip().removeprefix("!"))
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&<>")
    lexer.whitespace_split = True
    words, parts, part = iter(lexer), [], []
    for word in words:
        if word in ("<", ">"):
            next(words)  # the file
        elif set(word) <= set("|&<"):
            parts, part = [*parts, part], []
        else:
            part.append(word)
    return [tuple(words) for part in [*parts, part] if (words := _without_variables(part))]


def _without_variables(words: list[str]) -> list[str]:
    while words and (ASSIGNMENT.match(words[0]) or words[0] in ("export", "nohup")):
        words = words[1:]
    return words

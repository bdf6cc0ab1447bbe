"""Markdown pages taken apart: sections, commands, tables, and what their prose names."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from docs.tools.pages import NUMBER, read

FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.M | re.S)
INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")
HEADING = re.compile(r"^(#+) (.*)$", re.M)
TABLE = re.compile(r"(?:^\|.*\|\n)+", re.M)
LINK = re.compile(r"\]\(([^)]+)\)")
CODE = re.compile(r"`([^`]+)`")
COMMENT = re.compile(r"(?:^|(?<=\s))# .*$", re.M)


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it, up to the next."""

    level: int
    title: str
    commands: list[str]  # blocks of code, without their comments
    tables: list[list[list[str]]]  # rows of cells
    prose: str

    @property
    def codes(self) -> Counter[str]:
        return Counter(" ".join(code.split()) for code in CODE.findall(self.prose))

    @property
    def numbers(self) -> Counter[str]:
        """Of the prose, outside of code and of what a link leads to."""
        return Counter(NUMBER.findall(CODE.sub("", LINK.sub("]", self.prose))))

    @property
    def links(self) -> list[str]:
        return LINK.findall(self.prose)


def anchor(title: str) -> str:
    """What GitHub calls a heading in a link."""
    return re.sub(r"[^\w\- ]", "", CODE.sub(r"\1", LINK.sub("]", title)).lower()).replace(" ", "-")


def is_there(path: Path) -> bool:
    """A file, or a folder with more in it than Python's caches, which stay where a package has moved away."""
    return path.is_file() or (path.is_dir() and any(child.name != "__pycache__" for child in path.iterdir()))


def sections(page: Path) -> list[Section]:
    """In order; a heading within a block of code is none."""
    kept: list[str] = []

    def put_aside(match: re.Match) -> str:
        kept.append(match[0])
        return f"\0{len(kept) - 1}\0\n" if match[0].endswith("\n") else f"\0{len(kept) - 1}\0"

    text = INDENTED.sub(put_aside, FENCED.sub(put_aside, read(page)))
    starts = [match.start() for match in HEADING.finditer(text)] + [len(text)]
    return [_section(text[start:end], kept) for start, end in zip(starts, starts[1:], strict=False)]


def _section(text: str, kept: list[str]) -> Section:
    heading = HEADING.match(text)
    commands = [_without_comments(kept[int(number)]) for number in re.findall(r"\0(\d+)\0", text)]
    body = re.sub(r"\0\d+\0", "", text[heading.end() :])
    tables = [_rows(table) for table in TABLE.findall(body)]
    return Section(len(heading[1]), heading[2], commands, tables, TABLE.sub("", body))


def _without_comments(block: str) -> str:
    return "\n".join(line.rstrip() for line in COMMENT.sub("", block).splitlines() if line.strip())


def _rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()]

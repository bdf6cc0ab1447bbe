"""The pages of both languages, and the tables that programs write into them: between two marks, a line each:
<!-- NAME --> and <!-- end of NAME -->.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from data_tools.cli import Parser
from launch.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
CHINESE = ROOT / "docs" / "zh"
ENGLISH_PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
# Pages of users, which exist in both languages.
USERS = ("ai-studio", "align", "data", "export", "finetune", "low-memory", "recipes", "resume", "serve", "setup")
TRANSLATED = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in USERS))
NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:e-?\d+)?")


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def chinese_of(english: Path) -> Path:
    return ROOT / "README.zh.md" if english.parent == ROOT else CHINESE / english.name


def place(name: str) -> re.Pattern:
    """Where a page has its table NAME; groups 1 and 2 are the marks."""
    return re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)


def with_tables(text: str, tables: dict[str, Callable[[], str]], page: str) -> str:
    """Return a page's text with those tables that it has marks for as they are now. Raises UserError, which names
    `page`, where it has marks for none."""
    found = [name for name in tables if place(name).search(text)]
    if not found:
        marks = " or ".join(f"<!-- {name} --> and <!-- end of {name} -->" for name in tables)
        raise UserError(f"{page}: no lines {marks}.")
    for name in found:
        table = tables[name]()
        text = place(name).sub(lambda match, table=table: f"{match[1]}\n{table}\n\n{match[2]}", text)
    return text


def write_tables(parser: Parser, argv: list[str], tables: dict[str, Callable[[], str]]) -> None:
    """Run the command that puts tables, by the names of their marks, into the pages which are its arguments."""
    parser.add_argument("pages", nargs="+", metavar="PAGE", help="a file with the marks")
    for page in parser.parse_args(argv).pages:
        rewrite(Path(page), lambda text, page=page: with_tables(text, tables, page))


def joined(rows: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return the rows of a table, those that differ in their first cell alone as one, in the place of the first."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for first, *others in rows:
        alike.setdefault(tuple(others), []).append(first)
    return [(", ".join(firsts), *others) for others, firsts in alike.items()]


def rewrite(page: Path, change: Callable[[str], str]) -> None:
    """Put what `change` makes of a page's text in its place; bytes that are no UTF-8 stay as they are."""
    how = {"encoding": "utf-8", "errors": "surrogateescape"}
    page.write_text(change(page.read_text(**how)), **how)

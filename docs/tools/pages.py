"""The pages of both languages, and the tables that programs write into them: between two marks, a line each:
<!-- NAME --> and <!-- end of NAME -->.
"""

import re
from collections.abc import Callable
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


def with_table(text: str, name: str, table: str, page: str) -> str:
    """A page's text with the table as it is now. Raises UserError, which says `page`, where the marks are not there."""
    marked = place(name)
    if not marked.search(text):
        raise UserError(f"{page}: no lines <!-- {name} --> and <!-- end of {name} -->.")
    return marked.sub(lambda match: f"{match[1]}\n{table}\n\n{match[2]}", text)


def write_table(parser: Parser, argv: list[str], name: str, table: Callable[[], str]) -> None:
    """The command that puts a table into the pages which are its arguments."""
    parser.add_argument("pages", nargs="+", metavar="PAGE", help="a file with the marks")
    for page in parser.parse_args(argv).pages:
        rewrite(Path(page), lambda text, page=page: with_table(text, name, table(), page))


def rewrite(page: Path, change: Callable[[str], str]) -> None:
    """Put what `change` makes of a page's text in its place; bytes that are no UTF-8 stay as they are."""
    how = {"encoding": "utf-8", "errors": "surrogateescape"}
    page.write_text(change(page.read_text(**how)), **how)

"""Tables that programs write into pages: as Markdown, between two marks, a line each: <!-- NAME --> and
<!-- end of NAME -->.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from launch.errors import UserError


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The lines of a table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def place(name: str) -> re.Pattern:
    """Where a page has its table NAME; groups 1 and 2 are the marks."""
    return re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)


def with_table(text: str, name: str, table: str, page: str) -> str:
    """A page's text with the table as it is now. Raises UserError, which says `page`, where the marks are not there."""
    marked = place(name)
    if not marked.search(text):
        raise UserError(f"{page}: no lines <!-- {name} --> and <!-- end of {name} -->.")
    return marked.sub(lambda match: f"{match[1]}\n{table}\n\n{match[2]}", text)


def write_table(pages: list[str], name: str, table: str) -> None:
    for page in pages:
        path = Path(page)
        path.write_text(with_table(path.read_text(encoding="utf-8"), name, table, page), encoding="utf-8")

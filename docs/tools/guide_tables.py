"""Write the tables of docs/low-memory.md anew.

    python -m docs.tools.guide_tables docs/low-memory.md

A table stands between two marks: <!-- guide: TABLE MODEL OPTIONS --> and <!-- end of guide -->; what the first names
are the arguments of launch/commands/guide.py.
"""

import re
import sys
from pathlib import Path

from data_tools.cli import Parser
from docs.tools.pages import rewrite
from launch.commands.guide import case_and_table
from launch.errors import UserError
from launch.guard import guarded

MARKED = re.compile(r"(<!-- guide: (.*?) -->\n).*?(<!-- end of guide -->)", re.DOTALL)


def with_tables(text: str) -> str:
    """A page with its tables as they are now. Raises UserError where it has none."""
    if not MARKED.search(text):
        raise UserError("no line <!-- guide: TABLE MODEL OPTIONS --> with an <!-- end of guide --> behind it.")
    return MARKED.sub(lambda match: f"{match[1]}\n{case_and_table(match[2].split())[1]}\n\n{match[3]}", text)


def main(argv: list[str]) -> None:
    parser = Parser("python -m docs.tools.guide_tables", __doc__)
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE", help="a file with the marks")
    for page in parser.parse_args(argv).pages:
        rewrite(page, with_tables)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))

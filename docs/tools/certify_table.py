"""Write the table of checks into pages, between their marks.

python -m docs.tools.certify_table docs/certify.md
"""

import sys
from itertools import groupby

from data_tools.cli import Parser
from docs.tools.pages import write_tables
from launch.certify.certificate import Check, all_checks
from launch.guard import guarded
from launch.reporting.markdown import markdown

NAME = "checks"


def table() -> str:
    """A row for each check; checks that follow each other and differ by their names alone share one."""
    rows = []
    for (expected, at_fault), group in groupby(enumerate(all_checks(), start=1), key=lambda one: _text(one[1])):
        numbered = list(group)
        first, last = numbered[0][0], numbered[-1][0]
        names = ", ".join(f"`{check.name}`" for _, check in numbered)
        if numbered[0][1].name.startswith("recipe-"):
            names = "`recipe-X`"
        rows.append([f"{first} to {last}" if last > first else str(first), names, expected, at_fault])
    return markdown(["", "`--only`", "expected", "what a ✗ means"], rows)


def _text(check: Check) -> tuple[str, str]:
    return check.expected, check.at_fault


def main(argv: list[str]) -> None:
    write_tables(Parser("python -m docs.tools.certify_table", __doc__), argv, {NAME: table})


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))

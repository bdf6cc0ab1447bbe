"""Write the table of checks into pages, between their marks.

python -m docs.tools.certify_table docs/certify.md
"""

import sys

from data_tools.cli import Parser
from docs.tools.pages import write_tables
from launch.certify.certificate import Check, all_checks
from launch.guard import guarded
from launch.reporting.markdown import markdown

NAME = "checks"


def table() -> str:
    """A row a check; the recipes, which differ by their names alone, share one."""
    checks = list(enumerate(all_checks(), start=1))
    number, recipe = next(one for one in checks if one[1].name.startswith("recipe-"))
    rows = [_row(str(number), check.name, check) for number, check in checks if check.expected != recipe.expected]
    rows.append(_row(f"{number} to {len(checks)}", "recipe-X", recipe))
    return markdown(["", "`--only`", "expected", "what a ✗ means"], rows)


def _row(number: str, name: str, check: Check) -> list[str]:
    return [number, f"`{name}`", check.expected, check.at_fault]


def main(argv: list[str]) -> None:
    write_tables(Parser("python -m docs.tools.certify_table", __doc__), argv, {NAME: table})


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))

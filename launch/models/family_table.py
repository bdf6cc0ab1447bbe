"""The table of model families as Markdown, put where a document wants it.

    python -m launch.models.family_table docs/families.md

replaces what stands between the two marks, a line each: <!-- families --> and <!-- end of families -->.
"""

import re
import sys
from pathlib import Path

from launch.errors import UserError
from launch.guard import guarded
from launch.models.families import FAMILIES, FEATURES, Family

MARKED = re.compile(r"(<!-- families -->\n).*?(<!-- end of families -->)", re.DOTALL)
HAS, LACKS = "yes", "-"


def table() -> str:
    """One row a family, one column a feature; below it why something is lacking."""
    head = ["family", "`model_type`", "sees", *FEATURES.values()]
    rows = [head, ["---"] * len(head), *(_row(family) for family in FAMILIES.values())]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", *_reasons()]) + "\n"


def _row(family: Family) -> list[str]:
    sees = "what came before" if family.attention == "causal" else "prompt both ways"
    marks = [LACKS if feature in family.lacking else HAS for feature in FEATURES]
    return [family.title, f"`{family.model_type}`", sees, *marks]


def _reasons() -> list[str]:
    """- LoRA, GLM: why and what instead; families with the same reason together."""
    titles: dict[tuple[str, str], list[str]] = {}
    for family in FAMILIES.values():
        for feature, reason in family.lacking.items():
            titles.setdefault((FEATURES[feature], reason), []).append(family.title)
    return [f"- {feature}, {', '.join(names)}: {reason}." for (feature, reason), names in titles.items()]


def with_table(text: str, name: str) -> str:
    """A document with the table as it is now. Raises UserError where the marks are not there."""
    if not MARKED.search(text):
        raise UserError(f"{name}: no lines <!-- families --> and <!-- end of families -->.")
    return MARKED.sub(lambda match: match[1] + "\n" + table() + "\n" + match[2], text)


def main(argv: list[str]) -> None:
    for name in argv:
        path = Path(name)
        path.write_text(with_table(path.read_text(encoding="utf-8"), name), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))

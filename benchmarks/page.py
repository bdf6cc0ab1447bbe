"""The places of benchmarks' tables in the pages that show them."""

import re
from pathlib import Path

from docs.tools.pages import rewrite


def conditions(report: dict) -> str:
    """Return where it was measured, from the result of machine_facts() and the "versions"."""
    machine = report["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in report["versions"].items())
    return f"{machine['processor']}, {machine['cores']} cores, {machine['system']}; {versions}."


def place(text: str, script: str) -> re.Match:
    """Return where a page shows what benchmarks/SCRIPT makes.

    The place lies between the comment that names the script (group 1) and the one that ends it (group 3).

    Raises:
        ValueError: If the page has no such place.
    """
    found = re.search(rf"(<!-- made by benchmarks/{re.escape(script)}[^>]*-->\n)(.*?)(<!-- end)", text, re.DOTALL)
    if not found:
        raise ValueError(f"no line <!-- made by benchmarks/{script} --> with an <!-- end --> after it")
    return found


def put(file: Path, script: str, table: str) -> None:
    """Replace what stands in a page in the script's place."""

    def change(text: str) -> str:
        start, end = place(text, script).span(2)
        return text[:start] + table + text[end:]

    rewrite(file, change)

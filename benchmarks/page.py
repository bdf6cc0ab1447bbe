"""Tables of benchmarks as Markdown, and their place in the pages that show them."""

import re
from collections.abc import Collection, Iterable
from pathlib import Path


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]], numbers: Collection[int]) -> str:
    """A table; `numbers`: which columns are numbers, that stand to the right."""
    head = list(head)
    rule = ["---:" if column in numbers else "---" for column in range(len(head))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *rows))


def conditions(report: dict) -> str:
    """Where it was measured, from what machine_facts() found and the "versions"."""
    machine = report["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in report["versions"].items())
    return f"{machine['processor']}, {machine['cores']} cores, {machine['system']}; {versions}."


def place(text: str, script: str) -> re.Match:
    """Where a page shows what benchmarks/SCRIPT makes: between the comment that names it (group 1) and the one that
    ends it (group 3).

    Raises ValueError where the page has no such place.
    """
    found = re.search(rf"(<!-- made by benchmarks/{re.escape(script)}[^>]*-->\n)(.*?)(<!-- end)", text, re.DOTALL)
    if not found:
        raise ValueError(f"no line <!-- made by benchmarks/{script} --> with an <!-- end --> after it")
    return found


def put(file: Path, script: str, table: str) -> None:
    """Replace what stands in a page in the script's place."""
    text = file.read_text(encoding="utf-8")
    start, end = place(text, script).span(2)
    file.write_text(text[:start] + table + text[end:], encoding="utf-8")

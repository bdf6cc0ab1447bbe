"""Tables in Markdown."""

from collections.abc import Collection, Iterable, Sequence


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[int] = ()) -> str:
    """Return a table without its last line's end; `numbers`: columns that are aligned to the right."""
    rule = ["---:" if column in numbers else "---" for column in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))

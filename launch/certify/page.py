"""The Markdown page to send back. No Paddle here."""

from collections.abc import Sequence

from launch.certify.checks import Check
from launch.certify.results import FAIL, Result, Row
from launch.reporting.markdown import markdown

PRETENDED = (
    "**A pretended run: processes on a CPU stood for cards. It shows that the checks run, and nothing about any card.**"
)


def page(of: dict, checks: Sequence[Check], results: dict[str, Result]) -> str:
    """of: what `describe_machine` says; results: by the name of their check, those that are there."""
    parts = [_head(of), _overview(checks, results), *_faults(checks, results), _measured(results), _published(results)]
    parts += [_details(number, check, results[check.name]) for number, check in _done(checks, results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(of: dict) -> str:
    lines = [f"# Certificate: {of['cards_text']}", ""]
    if of["pretended"]:
        lines += [PRETENDED, ""]
    lines += [
        f"- driver: {of['driver'] or 'none'}",
        f"- processor: {of['processor']}",
        f"- versions: {', '.join(f'{name} {version}' for name, version in of['versions'].items())}",
        f"- repository: {of['git_revision'] or 'no checkout'}",
        "",
        "✓ as expected, ✗ not as expected, – not shown: this machine or this run cannot show it.",
    ]
    return "\n".join(lines)


def _overview(checks: Sequence[Check], results: dict[str, Result]) -> str:
    rows = []
    for number, check in enumerate(checks, start=1):
        result = results.get(check.name)
        found = (result.mark, result.found, f"{result.seconds:.0f}") if result else ("", "not run yet", "")
        rows.append([str(number), found[0], check.title, check.expected, found[1], found[2]])
    return "## Checks\n\n" + _table(["", "", "check", "expected", "found", "seconds"], rows)


def _faults(checks: Sequence[Check], results: dict[str, Result]) -> list[str]:
    failed = [(number, check) for number, check in _done(checks, results) if results[check.name].mark == FAIL]
    if not failed:
        return []
    return ["## What each ✗ means\n\n" + "\n".join(f"- {n} {check.title}: {check.at_fault}." for n, check in failed)]


def _measured(results: dict[str, Result]) -> str:
    """The table of rows that have a plan."""
    rows = [_measured_row(row.what, row.numbers) for row in _rows_with("measured", results) if row.numbers["measured"]]
    if not rows:
        return ""
    return "## Planned and measured\n\n" + _table(["what", "unit", "planned", "measured", "plan is off by"], rows)


def _measured_row(what: str, numbers: dict) -> list[str]:
    planned, measured = numbers["planned"], numbers["measured"]
    return [what, numbers["unit"], f"{planned:,.2f}", f"{measured:,.2f}", f"{planned / measured - 1:+.1%}"]


def _rows_with(number: str, results: dict[str, Result]) -> list[Row]:
    return [row for result in results.values() for row in result.rows if number in row.numbers]


def _published(results: dict[str, Result]) -> str:
    lines = [row.numbers["published"] for row in _rows_with("published", results)]
    if not lines:
        return ""
    return "## Lines for benchmarks/published.py\n\n```\n" + "\n".join(lines) + "\n```"


def _details(number: int, check: Check, result: Result) -> str:
    lines = [f"## {number} {check.title} {result.mark}"]
    if result.failure:
        lines.append(f"It did not come to its end: {_cell(result.failure)}")
    if result.mark == FAIL:
        lines.append(f"Its log: `{check.name}/log/workerlog.0` beside this page.")
    if result.rows:
        rows = [[row.mark, row.what, row.expected, row.found] for row in result.rows]
        lines.append(_table(["", "what", "expected", "found"], rows))
    return "\n\n".join(lines)


def _done(checks: Sequence[Check], results: dict[str, Result]) -> list[tuple[int, Check]]:
    return [(number, check) for number, check in enumerate(checks, start=1) if check.name in results]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return markdown(head, [[_cell(cell) for cell in row] for row in rows])


def _cell(text: str) -> str:
    """In one line that no table is broken by."""
    return " ".join(text.split()).replace("|", "\\|")

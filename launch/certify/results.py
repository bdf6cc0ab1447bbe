"""The results of checks: rows, marks, and the JSON file that holds them. No Paddle here."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from data_tools.formats.atomic import written_aside

PASS, FAIL, OPEN = "✓", "✗", "–"  # OPEN: this machine or a pretended run cannot show it


@dataclass(frozen=True)
class CheckRow:
    """One comparison of a check.

    Attributes:
        numbers: What was measured, for programs that read the file.
    """

    what: str
    expected: str
    found: str
    mark: str
    numbers: dict = field(default_factory=dict)


@dataclass(frozen=True)
class CheckResult:
    """The result of one check.

    Attributes:
        failure: Why it did not finish, or "".
    """

    name: str
    mark: str
    seconds: float
    rows: tuple[CheckRow, ...]
    failure: str = ""

    @property
    def found(self) -> str:
        """A summary in a few words."""
        failed = [row for row in self.rows if row.mark == FAIL]
        parts = [self.failure] if self.failure else []
        if failed:
            parts.append(f"{failed[0].what}: {failed[0].found}")
        if len(failed) > 1:
            parts.append(f"and {len(failed) - 1} more")
        if parts:
            return "; ".join(parts)
        if len(self.rows) == 1:
            return self.rows[0].found
        counts = [(sum(row.mark == mark for row in self.rows), text) for mark, text in COUNTED.items()]
        return ", ".join(f"{count} {text}" for count, text in counts if count) or "nothing"


COUNTED = {PASS: "as expected", OPEN: "not shown"}


def mark_of(rows: Iterable[CheckRow], failure: str, pretended: bool) -> str:
    """Return the mark of a whole check. A pretended run never gives PASS."""
    marks = {row.mark for row in rows}
    if failure or FAIL in marks:
        return FAIL
    return PASS if PASS in marks and not pretended else OPEN


def read_rows(path: Path) -> tuple[CheckRow, ...]:
    """Return the rows that a check has written so far."""
    if not path.exists():
        return ()
    return tuple(CheckRow(**row) for row in json.loads(path.read_text(encoding="utf-8")))


def write_json(path: Path, value) -> None:
    """Write the file as a whole or not at all. NaN and infinity become null."""
    with written_aside(path) as file:
        file.write((json.dumps(_finite(value), indent=1, ensure_ascii=False) + "\n").encode())


def read_results(path: Path) -> tuple[dict, dict[str, CheckResult]]:
    """Return (description of the machine, results by the name of their check); ({}, {}) without a file."""
    if not path.exists():
        return {}, {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return content["of"], {result["name"]: _result(result) for result in content["results"]}


def read_result(path: Path) -> CheckResult | None:
    """Return the result that a check has written at its end; None without a file."""
    return _result(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def _result(content: dict) -> CheckResult:
    rows = tuple(CheckRow(**row) for row in content.pop("rows"))
    return CheckResult(rows=rows, **content)


def _finite(value):
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def summary(results: dict) -> str:
    """Return the counts of all marks."""
    counts = {mark: sum(result.mark == mark for result in results.values()) for mark in (PASS, FAIL, OPEN)}
    words = {PASS: "as expected", FAIL: "not as expected", OPEN: "not shown"}
    return ", ".join(f"{count} {mark} {words[mark]}" for mark, count in counts.items())

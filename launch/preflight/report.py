"""How checks are shown: numbered lines with a mark, and a fix below each fault.

     1 ✓ Python          3.11.7
     2 ✗ protobuf        7.0.0, the lock has 4.25.8
                         fix: make setup

The standard library alone: the doctor prints with it where nothing is installed.
"""

import os
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TextIO

WIDTH = 80
GREEN, RED, PLAIN = "\033[32m", "\033[31m", "\033[0m"


@dataclass(frozen=True)
class Finding:
    """What one check found. fix: what the user does about it; a finding that is not ok has one."""

    ok: bool
    subject: str
    found: str
    fix: str = ""


def print_findings(findings: Iterable[Finding], file: TextIO) -> None:
    """Prints all findings to a terminal (in colours unless NO_COLOR is set) or to a file (without)."""
    findings = list(findings)
    coloured = file.isatty() and not os.environ.get("NO_COLOR")
    good, bad = _marks(file)
    column = max((len(finding.subject) for finding in findings), default=0) + 2
    for number, finding in enumerate(findings, start=1):
        mark = good if finding.ok else bad
        if coloured:
            mark = f"{GREEN if finding.ok else RED}{mark}{PLAIN}"
        indent = " " * (5 + len(good) + column)
        lines = _wrap(finding.found, indent)
        if finding.fix:
            lines += _wrap(f"fix: {finding.fix}", indent)
        print(f"{number:3d} {mark} {finding.subject:<{column}}{lines[0].lstrip()}", file=file)
        for line in lines[1:]:
            print(line, file=file)


def _wrap(text: str, indent: str) -> list[str]:
    # Neither words nor paths are broken: they are there to be copied.
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _marks(file: TextIO) -> tuple[str, str]:
    """The marks for good and bad, in letters where the file's encoding lacks the signs."""
    try:
        "✓✗".encode(file.encoding or "utf-8")
    except UnicodeEncodeError:
        return "ok", "NO"
    return "✓", "✗"

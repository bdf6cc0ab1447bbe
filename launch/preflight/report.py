"""How checks are shown: numbered lines with a mark, and a fix below each fault.

     1 ✓ Python          3.11.7
     2 ✗ protobuf        7.0.0, the lock has 4.25.8
                         fix: make setup

The standard library alone: the doctor prints with it where nothing is installed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TextIO

from data_tools.terminal import has_colours, marks, wrapped

GREEN, RED, PLAIN = "\033[32m", "\033[31m", "\033[0m"


@dataclass(frozen=True)
class Finding:
    """What one check found. fix: what the user does about it; a finding that is not ok has one."""

    ok: bool
    subject: str
    found: str
    fix: str = ""


def print_findings(findings: Iterable[Finding], file: TextIO) -> None:
    """Prints all findings, in colours where the file is a terminal that has them."""
    findings = list(findings)
    coloured = has_colours(file)
    good, bad = marks(file)
    column = max((len(finding.subject) for finding in findings), default=0) + 2
    for number, finding in enumerate(findings, start=1):
        mark = good if finding.ok else bad
        if coloured:
            mark = f"{GREEN if finding.ok else RED}{mark}{PLAIN}"
        indent = " " * (5 + len(good) + column)
        told = wrapped(finding.found, indent, indent).lstrip()
        print(f"{number:3d} {mark} {finding.subject:<{column}}{told}", file=file)
        if finding.fix:
            print(wrapped(f"fix: {finding.fix}", indent, indent), file=file)

"""How checks are shown: numbered lines with a mark, and a fix below each fault.

     1 ✓ Python          3.11.7
     2 ! samples         160 needed, 80 there: each is read 2.0 times
     3 ✗ protobuf        7.0.0, the lock has 4.25.8
                         fix: make setup

The standard library alone: the doctor prints with it where nothing is installed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TextIO

from data_tools.language import localized
from data_tools.terminal import columns, has_colours, marks, wrapped

GREEN, YELLOW, RED, PLAIN = "\033[32m", "\033[33m", "\033[31m", "\033[0m"
WARNING = "!"


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        fix: The user's remedy; a finding that is not ok has one.
        warns: The user should look at it, although the run may start.
    """

    ok: bool
    subject: str
    found: str
    fix: str = ""
    warns: bool = False


def print_findings(findings: Iterable[Finding], file: TextIO) -> None:
    """Print all findings, in color where the file is a terminal that supports it."""
    findings = list(findings)
    colored = has_colours(file)
    good, bad = marks(file)
    column = max((columns(localized(finding.subject)) for finding in findings), default=0) + 2
    for number, finding in enumerate(findings, start=1):
        mark, color = (good, GREEN) if finding.ok else (bad, RED)
        if finding.ok and finding.warns:
            mark, color = f"{WARNING:<{len(good)}}", YELLOW
        if colored:
            mark = f"{color}{mark}{PLAIN}"
        indent = " " * (5 + len(good) + column)
        subject = localized(finding.subject)
        subject += " " * (column - columns(subject))
        # An indented line is a command or a sample and is not wrapped.
        lines = localized(finding.found).split("\n")
        lines = [indent + line if line.startswith("    ") else wrapped(line, indent, indent) for line in lines]
        found = "\n".join(lines).lstrip()
        print(f"{number:3d} {mark} {subject}{found}", file=file)
        if finding.fix:
            print(wrapped(f"{localized('fix')}: {localized(finding.fix)}", indent, indent), file=file)

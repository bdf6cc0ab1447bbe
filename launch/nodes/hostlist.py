"""SLURM's short form of a list of hosts, written out without calling scontrol."""

import re
from itertools import product

from launch.errors import UserError

NAME = r"(?:[^,\[\]\s]+|\[[^\[\]\s]*\])+"  # text and brackets; a comma outside of brackets ends it
LIST = re.compile(f"{NAME}(?:,{NAME})*")
BRACKETS = re.compile(r"\[([^\[\]]*)\]")


def expand_hosts(hosts: str) -> list[str]:
    """["node01", "node02", "node07"] for "node[01-02,07]"; several brackets in a name are all combinations.

    As `scontrol show hostnames` does it: numbers keep their leading zeros, the last bracket counts fastest.
    Raises UserError for what is no such list.
    """
    if not LIST.fullmatch(hosts):
        raise UserError(f"list of hosts: found {hosts!r}, expected one such as node[01-03,07],login1.")
    return [host for name in re.findall(NAME, hosts) for host in _expand_name(name)]


def _expand_name(name: str) -> list[str]:
    parts = BRACKETS.split(name)  # text, bracket, text, bracket, ..., text
    choices = [[part] if number % 2 == 0 else _expand_ranges(part, name) for number, part in enumerate(parts)]
    return ["".join(chosen) for chosen in product(*choices)]


def _expand_ranges(ranges: str, name: str) -> list[str]:
    """["01", "02", "07"] for "01-02,07"."""
    numbers = []
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            raise UserError(f"list of hosts: found [{ranges}] in {name!r}, expected such as [01-03,07].")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers

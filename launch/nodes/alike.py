"""What must be the same on all nodes, and how differences are told."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from launch.reporting.summary import git_revision, package_versions

ROOT = Path(__file__).resolve().parents[2]
# Packages of which two versions may not meet in one run; others only draw or read files.
COMPARED = ("python", "paddlepaddle", "paddlepaddle-gpu", "paddlenlp", "numpy")


def facts(ranks: int) -> dict[str, str]:
    """What this node runs: versions, the state of this repository, its number of ranks."""
    versions = package_versions()
    return {
        **{name: versions[name] for name in COMPARED if name in versions},
        "git revision": git_revision() or "none",
        "sources": _digest_of_sources(),
        "ranks on the node": str(ranks),
    }


def flag_facts(flags: Mapping[str, list[str]]) -> dict[str, str]:
    """Every flag with its value."""
    return {f"--{name}": " ".join(words) or "1" for name, words in flags.items()}


def differences(told: Iterable[tuple[int, Mapping[str, str]]], describe: Callable[[list[int]], str]) -> list[str]:
    """One line for each fact that is not the same for all members. told: (number of a member, what it tells).

    describe: the members with these numbers, in words.
    """
    members = list(told)
    names = dict.fromkeys(name for _, known in members for name in known)
    lines = []
    for name in names:
        values: dict[str, list[int]] = {}
        for number, known in members:
            values.setdefault(known.get(name, "none"), []).append(number)
        if len(values) > 1:
            lines.append(f"{name}: " + "; ".join(f"{value} on {describe(where)}" for value, where in values.items()))
    return lines


def _digest_of_sources() -> str:
    """Twelve letters that change with any source file: two checkouts with edits are "-dirty" both."""
    digest = hashlib.sha256()
    for folder in ("launch", "data_tools"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]

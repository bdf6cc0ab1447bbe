"""The three tiers of the tests, and the slices of the nightly one.

    make test            not marked: at most 5 minutes on the reference machine of benchmarks/suite.py
    make test-long       @pytest.mark.long
    make test-nightly    @pytest.mark.nightly: all, or with SLICE=3 one of the slices of at most 8 minutes

`python -m tests.tiers 3` prints the files of slice 3; `turn` in place of a number takes the one whose turn it is.
"""

import json
import math
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "benchmarks" / "results" / "suite.json"
EXPRESSIONS = {"test": "not long and not nightly", "test-long": "long and not nightly", "test-nightly": "nightly"}
WORKERS = 2
SLICE_SECONDS = 7 * 60  # leaves a minute for imports and for workers that do not end at the same moment
UNKNOWN_SECONDS = 120.0  # of a file that has not been timed yet: rather too many slices than too long ones


@cache
def file_seconds(tier: str) -> dict[str, float]:
    """Return {path of a test file: seconds its tests of a tier take}, as benchmarks/suite.py has stored them."""
    return json.loads(STORED.read_text())["tiers"].get(tier, {}).get("files", {})


def nightly_files() -> list[str]:
    """Return the paths of the test files that have nightly tests, sorted."""
    nightly = re.compile("mark.nightly|FEW_AND_MANY")
    files = [file for file in ROOT.glob("tests/**/test_*.py") if nightly.search(file.read_text())]
    return sorted(file.relative_to(ROOT).as_posix() for file in files)


def divide(files: list[str], seconds: dict[str, float]) -> list[list[str]]:
    """Divide files into slices that WORKERS can run in SLICE_SECONDS each: the longest files first, each to the slice
    with the least to do. The division depends on its arguments alone."""
    cost = {file: seconds.get(file, UNKNOWN_SECONDS) for file in files}
    slices: list[list[str]] = [[] for _ in range(max(1, math.ceil(sum(cost.values()) / (SLICE_SECONDS * WORKERS))))]
    for file in sorted(files, key=lambda file: (-cost[file], file)):
        min(slices, key=lambda one: sum(cost[other] for other in one)).append(file)
    return slices


def main(asked: str) -> None:
    """Print the files of a slice. Each commit on main has the slice after the previous commit's: none is left out."""
    slices = divide(nightly_files(), file_seconds("test-nightly"))
    if asked == "turn":
        command = ["git", "rev-list", "--count", "--first-parent", "HEAD"]
        commits = int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
        asked = str(commits % len(slices) + 1)
    if not asked.isdecimal() or not 1 <= int(asked) <= len(slices):
        sys.exit(f"error: SLICE={asked}: expected 1 to {len(slices)}, or turn")
    print(f"nightly slice {asked} of {len(slices)}; to run it again: make test-nightly SLICE={asked}", file=sys.stderr)
    print(" ".join(slices[int(asked) - 1]))


if __name__ == "__main__":
    main(*sys.argv[1:])

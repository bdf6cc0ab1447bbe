"""The house's rule for lines, as CONTRIBUTING.md has it."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("launch", "data_tools", "custom_ops", "benchmarks", "tests")
LONGEST = 120


@pytest.mark.parametrize("folder", FOLDERS)
def test_lines_of_at_most_120_characters(folder):
    files = [path for path in (ROOT / folder).rglob("*.py") if "_pb2" not in path.name]
    assert files
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if len(line) > LONGEST
    ]
    assert not long, "\n".join(long)

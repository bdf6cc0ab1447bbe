"""What is in a folder that a user names."""

import sys
from collections.abc import Sequence
from pathlib import Path

from data_tools.formats.json_files import shown
from data_tools.formats.plural import plural

SHOWN_FILES = 5  # of those that are left out


def visible_files(folder: str | Path) -> list[Path]:
    """Return all files in a folder and below, sorted; hidden files and files of hidden folders are left out."""
    inside = [path for path in Path(folder).rglob("*") if path.is_file()]
    return sorted(path for path in inside if not any(name.startswith(".") for name in path.relative_to(folder).parts))


def say_left_out(folder: str, files: Sequence[Path], why: str) -> None:
    """Print which files of a folder are not read, such as "2 files of another kind: a.md, b.md"."""
    names = ", ".join(shown(file.relative_to(folder)) for file in files[:SHOWN_FILES])
    more = ", ..." if len(files) > SHOWN_FILES else ""
    print(f"left out of {folder}: {plural(len(files), 'file')} {why}: {names}{more}", file=sys.stderr)

"""What is in a folder that a user names."""

from pathlib import Path


def visible_files(folder: str | Path) -> list[Path]:
    """Return all files in a folder and below, sorted; hidden files and files of hidden folders are left out."""
    inside = [path for path in Path(folder).rglob("*") if path.is_file()]
    return sorted(path for path in inside if not any(name.startswith(".") for name in path.relative_to(folder).parts))

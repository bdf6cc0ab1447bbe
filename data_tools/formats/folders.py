"""What is in a folder that a user names."""

from pathlib import Path


def visible_files(folder: str | Path) -> list[Path]:
    """All files in it and below, by their paths; none whose name, or that of a folder between, begins with a point."""
    inside = [path for path in Path(folder).rglob("*") if path.is_file()]
    return sorted(path for path in inside if not any(name.startswith(".") for name in path.relative_to(folder).parts))

"""The files that the operator is built from, and their digest. The standard library alone: launch reads it, too."""

import hashlib
from pathlib import Path

HERE = Path(__file__).resolve().parent


def headers() -> list[Path]:
    """Return the files that the compiler reads."""
    return sorted(path for path in (HERE / "csrc").iterdir() if path.suffix in (".h", ".cuh", ".inc", ".cc", ".cu"))


def digest() -> str:
    """Return the SHA-256 of the files that the operator is built from."""
    total = hashlib.sha256()
    for path in [*headers(), *sorted((HERE / "fused_ln").glob("*.py")), HERE / "setup.py", HERE / "nvcc.py"]:
        total.update(path.name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()

"""Can the output directory be written? What an earlier run in it means: launch/preflight/continuation.py."""

import shutil
import tempfile
from pathlib import Path

from launch.preflight.report import Finding
from launch.processes.flags import Flags


def check_output(flags: Flags) -> list[Finding]:
    """Write a file, that is gone at once, where --output_dir is or will be made."""
    if not flags.get("output_dir"):
        return [Finding(False, "output", "no --output_dir", "--output_dir FOLDER, or OUTPUT=FOLDER")]
    wanted = Path(flags["output_dir"][0]).expanduser()
    nearest = next(path for path in [wanted, *wanted.absolute().parents] if path.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        found = f"{wanted} cannot be written: {nearest}: {error.strerror}"
        return [Finding(False, "output", found, "OUTPUT=FOLDER or --output_dir names another")]
    free = shutil.disk_usage(nearest).free / 1e9
    return [Finding(True, "output", f"{wanted}, {free:,.0f} GB free")]

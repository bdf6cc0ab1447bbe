"""Can the output directory be written, and is no other run in it? An earlier run: launch/preflight/continuation.py."""

import shutil
import tempfile
from pathlib import Path

from launch.checkpoint.state.output_lock import user_of
from launch.config.run_config import RunConfig
from launch.preflight.report import Finding


def check_output(run: RunConfig, starts: bool = True) -> list[Finding]:
    """Write a file, that is gone at once, where --output_dir is or will be made. starts: in it, now."""
    flags = run.words
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
    user = user_of(wanted) if starts and wanted.is_dir() else None
    if user:
        fix = "end that run, or OUTPUT=FOLDER (--output_dir) names another; nothing of it was touched"
        return [Finding(False, "output", f"{wanted} is in use by another run ({user})", fix)]
    free = shutil.disk_usage(nearest).free / 1e9
    return [Finding(True, "output", f"{wanted}, {free:,.0f} GB free")]

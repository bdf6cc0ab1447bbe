"""Can the output directory be written, and is an earlier run in it safe?"""

import shutil
import tempfile
from pathlib import Path

from launch.models.flag_values import YES
from launch.preflight.report import Finding
from launch.processes.flags import Flags
from launch.reporting.records import TRAIN_LOG


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
    if (wanted / TRAIN_LOG).exists() and _is_on(flags, "do_train") and not flags.get("resume_from_checkpoint"):
        if not _is_on(flags, "overwrite_output_dir"):
            fix = (
                "OUTPUT=FOLDER names another; --resume_from_checkpoint CHECKPOINT continues the run; "
                "--overwrite_output_dir 1 starts anew and keeps its log"
            )
            return [Finding(False, "output", f"{wanted} holds an earlier run ({TRAIN_LOG})", fix)]
    free = shutil.disk_usage(nearest).free / 1e9
    return [Finding(True, "output", f"{wanted}, {free:,.0f} GB free")]


def _is_on(flags: Flags, name: str) -> bool:
    """Whether a yes-or-no flag is given and says yes; without a value it does."""
    return name in flags and (not flags[name] or flags[name][0].lower() in YES)

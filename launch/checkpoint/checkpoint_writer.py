"""Writing a checkpoint: by all ranks, under another name until it is whole. No Paddle.

    partial = PartialCheckpoint(output, global_step, rank, ranks)
    partial.write([json_file(...), tensor_file(...)])        # every rank, its own files
    partial.finish(manifest)                                 # rank 0: waits for all ranks, writes the manifest, renames

The ranks communicate through files alone, so that a thread can do all of this while they train on.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from launch.checkpoint.manifest import (
    ADAPTER_FOUND_BY,
    MANIFEST,
    MODEL_FOUND_BY,
    PARTIAL,
    Manifest,
    checkpoint_name,
    checkpoints,
    is_ours,
)
from launch.checkpoint.parts import PARTS, Part
from launch.checkpoint.safetensors_file import NUMPY, header_bytes
from launch.checkpoint.stored_tensor import bytes_of
from launch.errors import UserError

REPORT = "report-{:05d}.json"  # sizes and hashes of a rank's files, or its error
POLL_SECONDS = 0.01
SYNCED_BYTES = 1 << 30  # written to the disk itself at once; more in the kernel's cache would take minutes at the end


@dataclass(frozen=True)
class NewPart:
    """A part of a tensor to be written.

    Attributes:
        values: Called once; returns it in part.shape_here, bfloat16 as uint16.
    """

    key: str
    dtype: str
    part: Part
    values: Callable[[], np.ndarray]

    @property
    def nbytes(self) -> int:
        """Bytes of the part."""
        return bytes_of(self.dtype, self.part.shape_here)


@dataclass(frozen=True)
class NewFile:
    """A file to be written.

    Attributes:
        pieces: Its bytes, piece by piece.
    """

    name: str
    pieces: Callable[[], Iterator[bytes | memoryview]]


def json_file(name: str, value: dict) -> NewFile:
    """Return a file with a JSON object."""
    return NewFile(name, lambda: iter([(json.dumps(value) + "\n").encode()]))


def safetensors_file(name: str, tensors: list[NewPart]) -> NewFile:
    """Return a safetensors file of parts; its metadata lists the parts that are no whole tensors."""

    def pieces() -> Iterator[bytes | memoryview]:
        parts = {tensor.key: tensor.part.to_json() for tensor in tensors if not tensor.part.is_whole}
        shapes = [(tensor.key, tensor.dtype, tensor.part.shape_here) for tensor in tensors]
        yield header_bytes({"format": NUMPY, PARTS: json.dumps(parts)}, shapes)
        for tensor in tensors:
            yield np.ascontiguousarray(tensor.values()).reshape(-1).view(np.uint8).data

    return NewFile(name, pieces)


class PartialCheckpoint:
    """The directory that becomes checkpoint-STEP.

    Attributes:
        written: Bytes that this rank has written so far.
        given_up: Set by another thread to the reason why rank 0 must not wait for the other ranks any more.
    """

    def __init__(self, output: Path | str, global_step: int, rank: int, ranks: int):
        self.final = Path(output) / checkpoint_name(global_step)
        self.directory = self.final.with_name(PARTIAL + self.final.name)
        self.global_step, self.rank, self.ranks = global_step, rank, ranks
        self.written = 0
        self.given_up: str | None = None
        self._own_report: dict | None = None

    def prepare(self) -> None:
        """Create an empty directory. Rank 0 calls it before any rank writes. Raises OSError."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)

    def write(self, files: list[NewFile]) -> None:
        """Write this rank's files and report them; on an error remove them and report the error.

        Raises:
            UserError: If the report cannot be written either.
        """
        written: dict[str, dict] = {}
        error = None
        try:
            for number, file in enumerate(files):
                if number == 1:
                    self._fault("after-first-file")
                if number == len(files) // 2:
                    self._fault("between-files")
                written[file.name] = write_hashed(self.directory / file.name, self._counted(file.pieces()))
        except Exception as failure:  # any error: rank 0 waits for this rank's report
            error = f"{self.directory}: {getattr(failure, 'strerror', None) or repr(failure)}"
            for file in files:
                (self.directory / file.name).unlink(missing_ok=True)
        self._own_report = {"files": written, "error": error}
        if self.rank == 0:
            return
        try:
            _write_report(self.directory / REPORT.format(self.rank), self._own_report)
        except OSError as failure:
            raise UserError(f"rank {self.rank}: {error or failure}") from None

    def finish(self, manifest: Manifest) -> None:
        """Wait for the reports of all ranks, write the manifest and give the checkpoint its name.

        Rank 0 calls it after its own `write`.

        Args:
            manifest: Its `files` are filled in here.

        Raises:
            UserError: And leaves nothing where a rank failed.
        """
        try:
            assert self._own_report
            reports = [self._own_report, *(self._report_of(rank) for rank in range(1, self.ranks))]
            errors = [f"rank {rank}: {report['error']}" for rank, report in enumerate(reports) if report["error"]]
            if errors:
                raise UserError("; ".join(errors))
            self._fault("before-manifest")
            files = {name: facts for report in reports for name, facts in report["files"].items()}
            text = replace(manifest, files=dict(sorted(files.items()))).to_json()
            write_hashed(self.directory / MANIFEST, iter([text.encode()]))
            sync_directory(self.directory)
            self._fault("before-rename")
            os.rename(self.directory, self.final)
            sync_directory(self.final.parent)
        except (OSError, UserError) as error:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise UserError(f"{self.final} could not be written: {error}") from None
        self._fault("after-rename")

    def _counted(self, pieces: Iterator[bytes | memoryview]) -> Iterator[bytes | memoryview]:
        for piece in pieces:
            yield piece
            self.written += len(piece)

    def _report_of(self, rank: int) -> dict:
        path = self.directory / REPORT.format(rank)
        while not path.exists():
            if self.given_up:
                raise UserError(self.given_up)
            time.sleep(POLL_SECONDS)
        report = json.loads(path.read_text(encoding="utf-8"))
        path.unlink()
        return report

    def _fault(self, point: str) -> None:
        fault_point(point, self.global_step, self.rank)


def write_hashed(path: Path, pieces: Iterator[bytes | memoryview]) -> dict:
    """Write a file and flush it to the disk. Returns its {"bytes", "sha256"}. Raises OSError."""
    digest, size, synced = hashlib.sha256(), 0, 0
    with open(path, "wb") as file:
        for piece in pieces:
            file.write(piece)
            digest.update(piece)
            size += len(piece)
            if size - synced >= SYNCED_BYTES:
                _sync(file)
                synced = size
        _sync(file)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def remove_checkpoint(checkpoint: Path) -> None:
    """Rename it first: a kill in between leaves a partial checkpoint, not a damaged one."""
    if checkpoint.is_symlink():  # its target belongs to somebody else
        checkpoint.unlink()
        return
    partial = checkpoint.with_name(PARTIAL + checkpoint.name)
    shutil.rmtree(partial, ignore_errors=True)
    os.rename(checkpoint, partial)
    shutil.rmtree(partial, ignore_errors=True)


def remove_old(newest: Path, limit: int, best: str | None) -> None:
    """Keep the newest `limit` checkpoints and the one named `best`. Checkpoints of other programs are left alone."""
    others = [path for path in checkpoints(newest.parent) if path != newest and path.name != best]
    for checkpoint in [path for path in others if is_ours(path)][max(limit - 1, 0) :]:
        remove_checkpoint(checkpoint)


def put_in_place(partial: Path, directory: Path) -> None:
    """Move the whole model or adapter in `partial` into a directory that may have an older one.

    The old files by which readers find a model are removed first, the new ones moved last: a kill in between leaves no
    model, never parts of two.
    """
    for path in partial.iterdir():
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    new = {path.name for path in partial.iterdir()}
    found_by = next(names for names in (MODEL_FOUND_BY, ADAPTER_FOUND_BY) if new.intersection(names))
    for name in found_by:  # of the same kind: an adapter may lie beside its base
        (directory / name).unlink(missing_ok=True)
    sync_directory(directory)
    for path in sorted(partial.iterdir(), key=lambda path: path.name in found_by):
        os.replace(path, directory / path.name)
    partial.rmdir()
    sync_directory(directory)


def sync_directory(directory: Path) -> None:
    """Flush the names in a directory to the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_report(path: Path, report: dict) -> None:
    """Write it under another name first: rank 0 reads it as soon as it is there."""
    aside = path.with_suffix(".partial")
    aside.write_text(json.dumps(report), encoding="utf-8")
    os.rename(aside, path)


# ---- where tests kill a save: LAUNCH_FAULT=POINT[@STEP[:RANK]] makes a rank kill itself there
#
# LAUNCH_FAULT=before-rename@20:0      rank 0, in the save of step 20, before the checkpoint gets its name


FAULT_VARIABLE = "LAUNCH_FAULT"
FAULT_POINTS = ("after-first-file", "between-files", "before-manifest", "before-rename", "after-rename")


def fault_point(point: str, global_step: int, rank: int) -> None:
    """End this process with SIGKILL where the variable requests it. Default: at every step, on rank 0."""
    fault = os.environ.get(FAULT_VARIABLE)
    if not fault:
        return
    match = re.fullmatch(r"([a-z-]+)(?:@(\d+)(?::(\d+))?)?", fault)
    if match is None or match[1] not in FAULT_POINTS:
        points = ", ".join(FAULT_POINTS)
        raise ValueError(f"{FAULT_VARIABLE}: found {fault!r}, allowed: POINT[@STEP[:RANK]], POINT of {points}")
    if match[1] == point and int(match[2] or global_step) == global_step and int(match[3] or 0) == rank:
        os.kill(os.getpid(), signal.SIGKILL)

"""The -ln p of response tokens by a reference, kept on disk. No Paddle.

OUTPUT/reference/train.json          what the values depend on, and the parts written: samples, values, SHA-256
    train.values                     float32, sample after sample, token after token
    train.sizes                      int64 [samples, 2], tokens of a sample in its first and in its second row
OUTPUT/reference/dev.json, ...       the same of the evaluation data

The record is written after the part that it names, so a kill costs those alone that were not finished; what the files
hold beyond it is overwritten by the next part. A split is two files, however many parts it has: each part in a file of
its own would stay open in a run of hours until the process may open no more.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data_tools.formats.atomic import written_aside

FOLDER = "reference"
RECORD, VALUES, SIZES = ".json", ".values", ".sizes"
VALUE, SIZE = np.dtype("<f4"), np.dtype("<i8")
ROW = 2 * SIZE.itemsize  # of SIZES, bytes
Losses = tuple[np.ndarray, np.ndarray]  # of a sample: of the tokens that count in its first and in its second row


class StoredLosses:
    """Losses on disk.

    Raises OSError where a file is there but cannot be read.

    Attributes:
        changed: Names of `made_by` that differ from the values on disk, which then are not used.
        damaged: The first damaged file, "" for none; later ones are not used either.
        made_by: JSON objects that the values depend on, by name.
        verify: Compare the files' hashes.
    """

    def __init__(self, folder: Path, name: str, made_by: dict[str, object], verify: bool):
        self._folder, self._name = folder, name
        self._made_by = json.loads(json.dumps(made_by))
        self.changed: list[str] = []
        self.damaged = ""
        self._parts: list[dict] = []
        self.samples = self._count = 0  # of the parts: samples, and values
        self._values: np.ndarray = np.empty(0, VALUE)
        self._read(verify)

    def __getitem__(self, sample: int) -> Losses:
        first, second, end = self._ends[2 * sample : 2 * sample + 3]
        return self._values[first:second], self._values[second:end]

    def append(self, losses: Sequence[Losses]) -> None:
        """Write the losses of the samples that follow, which another StoredLosses reads.

        For one process alone. Raises OSError.
        """
        sizes = np.array([[len(row) for row in rows] for rows in losses], SIZE)
        values = np.concatenate([row for rows in losses for row in rows]).astype(VALUE)
        self._folder.mkdir(parents=True, exist_ok=True)
        hashes = {}
        places = ((VALUES, values, VALUE.itemsize * self._count), (SIZES, sizes, ROW * self.samples))
        for suffix, array, offset in places:
            content = array.tobytes()
            _write(self._path(suffix), offset, content)
            hashes[suffix] = hashlib.sha256(content).hexdigest()
        self._add({"samples": len(sizes), "values": len(values), "sha256": hashes})
        self.write_record()

    def write_record(self) -> None:
        """Write the record of the current state: changed or damaged parts are no longer named."""
        with written_aside(self._path(RECORD)) as file:
            file.write(json.dumps({"made_by": self._made_by, "parts": self._parts}, indent=1).encode())

    def _read(self, verify: bool) -> None:
        record, sizes = self._path(RECORD), [np.zeros(1, SIZE)]
        try:
            content = json.loads(record.read_text(encoding="utf-8"))
            made_by, parts = content["made_by"], content["parts"]
            self.changed = sorted(
                name for name in made_by.keys() | self._made_by.keys() if made_by.get(name) != self._made_by.get(name)
            )
            if parts and not self.changed:
                self.damaged = self._read_parts(parts, sizes, verify)
        except FileNotFoundError as error:
            self.damaged = "" if error.filename == str(record) else str(error.filename)
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            self.damaged = str(record)
        self._ends = np.cumsum(np.concatenate(sizes))
        if self._count:
            self._values = np.memmap(self._path(VALUES), VALUE, "r", shape=(self._count,))

    def _read_parts(self, parts: list[dict], sizes: list[np.ndarray], verify: bool) -> str:
        """Return the first damaged file, "" for none. sizes: gets the sizes of the parts before it."""
        with open(self._path(VALUES), "rb") as of_values, open(self._path(SIZES), "rb") as of_sizes:
            for part in parts:
                contents = {SIZES: of_sizes.read(ROW * part["samples"])}
                if verify:
                    contents[VALUES] = of_values.read(VALUE.itemsize * part["values"])
                    for suffix, content in contents.items():
                        if hashlib.sha256(content).hexdigest() != part["sha256"][suffix]:
                            return str(self._path(suffix))
                found = np.frombuffer(contents[SIZES], SIZE)
                if found.sum() != part["values"]:
                    raise ValueError("sizes of other values")
                sizes.append(found)
                self._add(part)
        return ""

    def _add(self, part: dict) -> None:
        self._parts.append(part)
        self.samples += part["samples"]
        self._count += part["values"]

    def _path(self, suffix: str) -> Path:
        return self._folder / f"{self._name}{suffix}"


def _write(path: Path, offset: int, content: bytes) -> None:
    """Write from an offset to the end of the file, which is made where it is missing."""
    path.touch()
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(content)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())

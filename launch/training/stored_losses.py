"""The -ln p of response tokens by a reference, kept on disk. No Paddle.

OUTPUT/reference/train.json          what the values depend on, and the files with sizes and SHA-256
    train-0.npy                      float32, of the samples from number 0 on, token after token
    train-0-sizes.npy                int64 [samples, 2], tokens of a sample in its first and in its second row
OUTPUT/reference/dev.json, ...       the same of the evaluation data

The record is written after the files that it names, so a kill costs those alone that were not finished.
"""

import io
import json
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data_tools.formats.atomic import written_aside
from launch.checkpoint.checkpoint_writer import write_hashed
from launch.checkpoint.manifest import sha256

FOLDER = "reference"
Losses = tuple[np.ndarray, np.ndarray]  # of a sample: of the tokens that count in its first and in its second row


class StoredLosses:
    """changed: names of `made_by` that differ from those of the values on disk, which then are not used. damaged: the
    first file that is not what was written, "" for none; what lies behind it is not used either.

    made_by: JSON objects that the values depend on, by name. verify: compare the files' hashes.
    """

    def __init__(self, folder: Path, name: str, made_by: dict[str, object], verify: bool):
        self._folder, self._name = folder, name
        self._made_by = json.loads(json.dumps(made_by))
        self.changed: list[str] = []
        self.damaged = ""
        self._parts: list[dict] = []
        self._firsts: list[int] = []  # sample of each part
        self._values: list[np.ndarray] = []
        self._ends: list[np.ndarray] = []  # where the rows of a part's samples end among its values
        self.samples = 0
        self._read(verify)

    def __getitem__(self, sample: int) -> Losses:
        part = bisect_right(self._firsts, sample) - 1
        values, ends = self._values[part], self._ends[part]
        row = 2 * (sample - self._firsts[part])
        return values[ends[row] : ends[row + 1]], values[ends[row + 1] : ends[row + 2]]

    def append(self, losses: Sequence[Losses]) -> None:
        """Write those of the samples that follow. For one process alone."""
        sizes = np.array([[len(row) for row in rows] for rows in losses], dtype=np.int64)
        values = np.concatenate([row for rows in losses for row in rows]).astype(np.float32)
        self._folder.mkdir(parents=True, exist_ok=True)
        files = {}
        for suffix, array in (("", values), ("-sizes", sizes)):
            file = f"{self._name}-{self.samples}{suffix}.npy"
            files[file] = write_hashed(self._folder / file, iter([_npy(array)]))
        self._take({"samples": len(losses), "files": files})
        self.write_record()

    def write_record(self) -> None:
        """As it is now: what was changed or damaged is no longer named."""
        with written_aside(self._folder / f"{self._name}.json") as file:
            file.write(json.dumps({"made_by": self._made_by, "parts": self._parts}, indent=1).encode())

    def _read(self, verify: bool) -> None:
        path = self._folder / f"{self._name}.json"
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            made_by, parts = record["made_by"], record["parts"]
            self.changed = sorted(
                name for name in made_by.keys() | self._made_by.keys() if made_by.get(name) != self._made_by.get(name)
            )
            for part in parts if not self.changed else ():
                self.damaged = self._first_fault(part) if verify else ""
                if self.damaged:
                    return
                self._take(part)
        except FileNotFoundError as error:
            self.damaged = "" if error.filename == str(path) else str(error.filename)
        except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
            self.damaged = str(path)

    def _first_fault(self, part: dict) -> str:
        for name, written in part["files"].items():
            path = self._folder / name
            if not path.is_file() or path.stat().st_size != written["bytes"] or sha256(path) != written["sha256"]:
                return str(path)
        return ""

    def _take(self, part: dict) -> None:
        values, sizes = (np.load(self._folder / name, mmap_mode="r") for name in part["files"])
        ends = np.concatenate([[0], np.cumsum(sizes)])
        if sizes.shape != (part["samples"], 2) or ends[-1] != len(values):
            raise ValueError("files of different samples")
        self._parts.append(part)
        self._firsts.append(self.samples)
        self._values.append(values)
        self._ends.append(ends)
        self.samples += part["samples"]


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()

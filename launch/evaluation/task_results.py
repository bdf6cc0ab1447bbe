"""Results of an evaluation: collected so that nothing is computed twice, and written. No Paddle."""

import hashlib
import json
import sys
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

from data_tools.formats.atomic import open_alone, write_all, written_aside
from data_tools.formats.benchmarks.files import PLACE
from launch.errors import UserError


def require_none(path: Path) -> None:
    """Raise UserError where there are results already: they may have taken days."""
    if path.exists():
        raise UserError(f"{path}: there are results already. Name another file: --output_file.")


class Collected:
    """Results of requests, in a file beside the results until all are computed.

    Attributes:
        path: Of the results.
        identity: Of the model and the settings; an earlier file of others is refused.
        sizes: Of batches, by the flag that sets each; an earlier start's are reported, since numbers differ with
            them by rounding.
    """

    def __init__(self, path: Path, identity: str, sizes: dict[str, int]):
        self.path = path
        self.partial = path.with_name(f".{path.name}.unfinished")
        self.identity, self.sizes = identity, sizes
        self.digests: dict[str, str] = {}  # from a kind of request to that of all of its requests
        self.values: dict[str, dict[int, Any]] = {}
        self._file: FileIO | None = None

    def open(self) -> None:
        """Read what an earlier start has left, and go on behind it.

        Raises:
            UserError: If it is damaged or of something else, or the results are there.
            DataError: If another process writes it.
        """
        self._file = open_alone(self.partial)
        if self.path.exists():  # by a process that has finished since this one started
            self.finish()
        require_none(self.path)
        try:
            self._read(self._file)
        except UserError:
            self.close()
            raise

    def _read(self, file: FileIO) -> None:
        file.seek(0)
        whole = [line for line in file.readall().splitlines(keepends=True) if line.endswith(b"\n")]
        try:
            lines = [json.loads(line) for line in whole] or [[self.identity, self.sizes]]
            (identity, sizes), *stored = lines
            for kind, digest, values in stored:
                self.digests[kind] = digest
                self.values.setdefault(kind, {}).update((int(number), value) for number, value in values)
            changed = [
                f"{flag} is {size}, was {sizes[flag]}" for flag, size in self.sizes.items() if sizes[flag] != size
            ]
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            raise UserError(f"{self.partial}: damaged. Remove it; the evaluation begins anew.") from None
        self._require(identity == self.identity)
        if changed:
            print(
                f"{'; '.join(changed)}: what is left is computed in other batches than it would have been, and may "
                "differ by rounding",
                file=sys.stderr,
            )
        file.truncate(sum(map(len, whole)))  # a kill may have cut the last line
        if not whole:
            self._write([self.identity, self.sizes])

    def _require(self, same: bool) -> None:
        if not same:
            raise UserError(
                f"{self.partial}: of another model, other tasks or other settings. Remove it, or name another "
                "--output_file."
            )

    def begin(self, kind: str, digest: str) -> dict[int, Any]:
        """Return the computed results of requests of a kind. digest: of all of them.

        Raises:
            UserError: If others were asked.
        """
        self._require(self.digests.setdefault(kind, digest) == digest)
        return dict(self.values.get(kind, {}))

    def add(self, kind: str, values: list[tuple[int, Any]]) -> None:
        """Add (number of a request, its result)."""
        self._write([kind, self.digests[kind], values])

    def _write(self, value: object) -> None:
        assert self._file
        write_all(self._file, json.dumps(value).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()

    def finish(self) -> None:
        """Remove the file: the results are written."""
        self.partial.unlink(missing_ok=True)
        self.close()


def write_results(path: Path, report: dict, default: Callable[[object], object]) -> None:
    """Write lm-eval's report.

    Of each sample it has answers and measures, its origin, and a digest of the question instead of the texts.

    Args:
        path: Of the file.
        report: lm-eval's.
        default: Makes values of JSON of other ones.
    """
    del report["configs"]  # with functions in it
    for sample in (sample for samples in report["samples"].values() for sample in samples):
        asked = json.dumps([sample.pop("arguments"), sample.pop("target")], default=str)
        sample["digest"] = hashlib.sha256(asked.encode()).hexdigest()[:16]
        sample["place"] = sample.pop("doc").get(PLACE, "")
        for key in ("filtered_resps", "doc_hash", "prompt_hash", "target_hash"):
            del sample[key]
    with written_aside(path) as file:
        file.write((json.dumps(report, ensure_ascii=False, indent=1, default=default) + "\n").encode("utf-8"))

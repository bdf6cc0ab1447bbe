"""Results of an evaluation: collected so that nothing is computed twice, written, and shown. No Paddle."""

import json
import math
from io import FileIO
from pathlib import Path

from data_tools.formats.atomic import open_alone, write_all, written_aside
from launch.errors import UserError
from launch.evaluation.tasks import OF_ITEMS, Outcome, Task, measures, subjects
from launch.evaluation.written_scores import BLEU


def require_none(path: Path) -> None:
    """Raises UserError where there are results already: they may have taken days."""
    if path.exists():
        raise UserError(f"{path}: there are results already. Name another file: --output_file.")


class Collected:
    """The outcomes of finished items, in a file beside the results until all are there.

    path: of the results. identity: of the model, the settings and all requests: what is there of others is refused.
    """

    def __init__(self, path: Path, identity: str):
        self.path = path
        self.partial = path.with_name(f".{path.name}.unfinished")
        self.identity = identity
        self.values: dict[tuple[int, int], Outcome] = {}
        self._file: FileIO | None = None

    def open(self) -> None:
        """Read what an earlier start has left, and go on behind it. Raises UserError where it is damaged or of
        something else, or the results are there, DataError where another process writes it."""
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
            identity, *stored = [json.loads(line) for line in whole] or [self.identity]
            self.values = {(task, item): values for task, item, values in stored}
        except (ValueError, TypeError):
            raise UserError(f"{self.partial}: damaged. Remove it; the evaluation begins anew.") from None
        if identity != self.identity:
            raise UserError(
                f"{self.partial}: of another model, other tasks or other settings. Remove it, or name another "
                "--output_file."
            )
        file.truncate(sum(map(len, whole)))  # a kill may have cut the last line
        if not whole:
            self._write(self.identity)

    def add(self, task: int, item: int, values: Outcome) -> None:
        self.values[task, item] = values
        if self._file:
            self._write([task, item, values])

    def _write(self, value: object) -> None:
        assert self._file
        write_all(self._file, json.dumps(value).encode() + b"\n")

    def close(self) -> None:
        if self._file:
            self._file.close()

    def finish(self) -> None:
        """The results are written."""
        self.partial.unlink(missing_ok=True)
        self.close()


def results(head: dict, tasks: list[Task], values: dict[tuple[int, int], Outcome]) -> dict:
    """What is written. head: of what was evaluated and how."""
    report = {}
    for number, task in enumerate(tasks):
        records = [task.record(index, values[number, index]) for index in range(len(task.items))]
        report[task.name] = {
            "items": len(records),
            **measures(records),
            "subjects": subjects(records),
            "records": records,
        }
    return head | {"tasks": report}


def write_results(path: Path, report: dict) -> None:
    with written_aside(path) as file:
        file.write((json.dumps(report, ensure_ascii=False, indent=1) + "\n").encode("utf-8"))


def table(report: dict) -> list[str]:
    """A line for each task."""
    names = [f"{name} ({of['items']:,})" for name, of in report["tasks"].items()]
    width = max(map(len, names))
    return [f"{name:<{width}}  {_shown(of)}" for name, of in zip(names, report["tasks"].values(), strict=True)]


def _shown(of: dict) -> str:
    if "bits_per_byte" in of:
        word, byte = of.get("word_perplexity", math.inf), of.get("byte_perplexity", math.inf)
        return f"word perplexity {word:,.2f}  byte perplexity {byte:.4f}  bits per byte {of['bits_per_byte']:.4f}"
    parts = [f"{name} {of[name]:.4f} ± {of[f'{name}_stderr']:.4f}" for name in OF_ITEMS if name in of]
    return "  ".join([*parts, f"{BLEU} {of[BLEU]:.2f}"] if BLEU in of else parts)

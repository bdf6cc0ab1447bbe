"""What a check works with: its folder, the cards, rows to report, the product's own training. And the results' file.

A check runs in a process of its own (launch/certify/runner.py). On cards that process has not imported Paddle when the
check begins; in a pretended run it is a fork of one that has, in which no operator has run.
"""

import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from data_tools.formats.atomic import written_aside
from launch.config.flag_values import Flags, flag_words
from launch.errors import UserError
from launch.processes.command import LaunchCommand
from launch.processes.logs import last_lines, log_path
from launch.reporting.records import read_train_log

ROOT = Path(__file__).resolve().parents[2]
MATERIALS = "llama-rehearsal"  # the tiny model of the checks: 4 layers of 64, 332,352 parameters
# Matrix products of float32 in float32: with TF32, which cuBLAS uses by itself, they have 11 bits.
# https://docs.nvidia.com/cuda/cublas/#environment-variables
FULL_FLOAT32 = {"NVIDIA_TF32_OVERRIDE": "0"}


# ---- results

PASS, FAIL, OPEN = "✓", "✗", "–"  # OPEN: not shown, because this machine or a pretended run cannot show it


@dataclass(frozen=True)
class Row:
    """One comparison of a check. numbers: what was measured, for programs that read the file."""

    what: str
    expected: str
    found: str
    mark: str
    numbers: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """One check. failure: why it did not come to its end, "" where it did."""

    name: str
    mark: str
    seconds: float
    rows: tuple[Row, ...]
    failure: str = ""

    @property
    def found(self) -> str:
        """In a few words."""
        failed = [row for row in self.rows if row.mark == FAIL]
        parts = [self.failure] if self.failure else []
        if failed:
            parts.append(f"{failed[0].what}: {failed[0].found}")
        if len(failed) > 1:
            parts.append(f"and {len(failed) - 1} more")
        if parts:
            return "; ".join(parts)
        if len(self.rows) == 1:
            return self.rows[0].found
        counts = [(sum(row.mark == mark for row in self.rows), text) for mark, text in COUNTED.items()]
        return ", ".join(f"{count} {text}" for count, text in counts if count) or "nothing"


COUNTED = {PASS: "as expected", OPEN: "not shown"}


def mark_of(rows: Iterable[Row], failure: str, pretended: bool) -> str:
    """The mark of a whole check. A pretended run never gives PASS."""
    marks = {row.mark for row in rows}
    if failure or FAIL in marks:
        return FAIL
    return PASS if PASS in marks and not pretended else OPEN


def read_rows(path: Path) -> tuple[Row, ...]:
    """The rows that a check has written so far; none where it has not begun."""
    if not path.exists():
        return ()
    return tuple(Row(**row) for row in json.loads(path.read_text(encoding="utf-8")))


def write_json(path: Path, value) -> None:
    """Whole or not at all; NaN and infinity become null."""
    with written_aside(path) as file:
        file.write((json.dumps(_finite(value), indent=1, ensure_ascii=False) + "\n").encode())


def read_results(path: Path) -> tuple[dict, dict[str, Result]]:
    """(what the results are of, the results by the name of their check); ({}, {}) without a file."""
    if not path.exists():
        return {}, {}
    content = json.loads(path.read_text(encoding="utf-8"))
    results = {}
    for result in content["results"]:
        rows = tuple(Row(**row) for row in result.pop("rows"))
        results[result["name"]] = Result(rows=rows, **result)
    return content["of"], results


def write_results(path: Path, of: dict, results: Iterable[Result]) -> None:
    write_json(path, {"of": of, "results": [asdict(result) for result in results]})


def _finite(value):
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---- the bench


class CheckFailed(Exception):
    """A run that a check needs did not end as it should."""


@dataclass
class Bench:
    """directory: of this check; materials: the tiny model and its data (launch/rehearsal/materials.py); cards: how
    many there are, or how many processes a pretended run takes for cards."""

    directory: Path
    materials: Path
    cards: int
    pretend: bool
    rows: list[Row] = field(default_factory=list)

    # ---- report

    def row(self, what: str, expected: str, found: str, ok: bool | None, anywhere: bool = False, **numbers) -> None:
        """Report one comparison, at once: a crash of what follows does not lose it.

        ok: None where nothing could be compared. anywhere: a pretended run shows it as well as a card does.
        """
        mark = OPEN if ok is None or (ok and self.pretend and not anywhere) else PASS if ok else FAIL
        self.rows.append(Row(what, expected, without_paths(found, self.directory.parent), mark, numbers))
        write_json(self.directory / "rows.json", [asdict(row) for row in self.rows])

    def needs_cards(self, count: int) -> bool:
        """Whether so many are there; a row that says so where they are not."""
        if self.cards < count:
            self.row("cards", f"{count} or more", f"{self.cards} here", None)
        return self.cards >= count

    # ---- the product's own training

    def train(
        self, name: str, script: str, flags: Flags, processes: int = 1, on_cpu: bool = False, **environment: str
    ) -> int:
        """Train by a shared module with these flags, in self.directory / name; its exit code.

        processes: one a card. on_cpu: on the CPU of this machine, also where there are cards.
        """
        output = self.directory / name
        device = "cpu" if self.pretend or on_cpu else "gpu"
        flags = {"device": [device], "output_dir": [str(output)]} | flags
        os.environ.update(environment)
        try:
            if self.pretend:
                return self._train_in_forks(name, script, flags, processes)
            return self._train_on_cpu(name, script, flags) if on_cpu else self._train_on_cards(script, flags, processes)
        finally:
            for variable in environment:
                os.environ.pop(variable)

    def train_well(self, name: str, script: str, flags: Flags, processes: int = 1, **others) -> Path:
        """The output directory of a training that ended well. Raises CheckFailed for another end, with its log."""
        exit_code = self.train(name, script, flags, processes, **others)
        if exit_code:
            raise CheckFailed(f"{name} ended with exit code {exit_code}: {self.log_end(name)}")
        return self.directory / name

    def log_end(self, name: str) -> str:
        """What the ranks' logs end with: faults that the checks at the start have found, else the last line of each
        rank; one that was stopped because of another may say nothing."""
        ends, faults = [], []
        for log in sorted((self.directory / name / "log").glob("workerlog.*")):
            text = without_paths(last_lines(log, 60), self.directory.parent)  # before a line is cut within a path
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            faults += [line for line in lines if "✗" in line]
            ends += [f"rank {log.suffix[1:]}: {lines[-1][:200]}"] if lines else []
        return "; ".join(faults or ends) or "nothing was logged"

    def _train_in_forks(self, name: str, script: str, flags: Flags, processes: int) -> int:
        from launch.processes.fork import run_ranks
        from launch.rehearsal.rehearse import train_rank

        train = partial(train_rank, script, flag_words(flags), processes)
        return run_ranks(processes, train, self.directory / name / "log").exit_code

    def _train_on_cards(self, script: str, flags: Flags, processes: int) -> int:
        from launch.processes.supervise import supervise

        devices = visible_devices()[:processes]
        log_dir = os.path.join(flags["output_dir"][0], "log")
        command = LaunchCommand(ROOT / "launch" / f"{script}.py", flags, log_dir, tuple(devices), processes)
        return supervise(command.words(), log_dir, processes)

    def _train_on_cpu(self, name: str, script: str, flags: Flags) -> int:
        """One process that sees no card: Paddle's GPU build runs on the CPU then."""
        log = log_path(self.directory / name / "log", 0)
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(ROOT / "launch" / f"{script}.py"), *flag_words(flags)]
        print(shlex.join(command), flush=True)
        with open(log, "wb") as file:
            environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
            return subprocess.run(command, env=environment, stdout=file, stderr=subprocess.STDOUT).returncode


def without_paths(text: str, output: Path) -> str:
    """Text for the report, which is sent to others: its folder is OUTPUT, this repository `.`, and home `~`."""
    for folder, name in ((output, "OUTPUT"), (ROOT, "."), (Path.home(), "~")):
        for path in {str(folder), os.path.realpath(folder)} - {"/"}:
            text = re.sub(rf"{re.escape(path)}(?![\w-])", name, text)
    return text


def visible_devices() -> list[str]:
    """The cards that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    from launch.devices.cards import list_cards

    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return [word.strip() for word in listed.split(",") if word.strip()]
    return [str(card.index) for card in list_cards()]


def make_materials(configuration: str) -> Path:
    """The tiny model of a family, its tokenizer and its data, made where they are not there.

    In a process that sees no card: what Paddle's GPU build has looked at CUDA with cannot fork others that use it.
    Raises UserError where that fails.
    """
    from launch.processes.fork import run_ranks
    from launch.rehearsal.rehearse import find_materials, import_paddle

    directory = find_materials(configuration)
    if directory.exists():
        return directory

    def make(rank: int) -> None:
        from launch.rehearsal.materials import make_materials

        if "paddle" not in sys.modules:
            import_paddle({}, 1)
        make_materials(directory, configuration)

    log_dir = directory.with_name(f"{directory.name}.log")
    if run_ranks(1, make, log_dir, environment={"CUDA_VISIBLE_DEVICES": ""}, time_limit=300).exit_code:
        raise UserError(f"the tiny model {configuration} cannot be made:\n{last_lines(log_path(log_dir, 0))}")
    shutil.rmtree(log_dir)
    return directory


def tiny_pretraining(materials: Path, steps: int, **changes: str) -> Flags:
    """Flags of run_pretrain.py for the tiny model: every step logged, nothing saved, nothing evaluated."""
    flags = {
        "model_name_or_path": materials / "model",
        "tokenizer_name_or_path": materials / "model",
        "input_dir": materials / "data",
        "max_seq_length": 64,
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 4,
        "max_steps": steps,
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "weight_decay": 0.1,
        "max_grad_norm": 1.0,
        "save_strategy": "no",
        "evaluation_strategy": "no",
        "do_train": 1,
        "do_eval": 0,
        "loss_watch": 0,
        "disable_tqdm": 1,
        "report_to": "none",
        "cpu_fast": "off",
    }
    return {name: [str(value)] for name, value in (flags | changes).items()}


class Step(NamedTuple):
    """grad_norm: of all gradients, before clipping. Both NaN where they were no numbers."""

    loss: float
    grad_norm: float


def steps(output: Path) -> list[Step]:
    """The logged steps of a run."""
    logged = [record for record in read_train_log(output) if "loss" in record]
    return [Step(*(math.nan if record[key] is None else record[key] for key in Step._fields)) for record in logged]

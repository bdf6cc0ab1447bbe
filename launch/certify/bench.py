"""The tools of a check: its folder, the cards, rows to report, the product's own training, and the tiny model.

A check runs in a process of its own (launch/certify/certificate.py). On cards that process has not imported Paddle when
the check begins; in a pretended run it is a fork of one that has, in which no operator has run.
"""

import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from launch.certify.results import FAIL, OPEN, PASS, CheckRow, write_json
from launch.config.flag_values import Flags, flag_arguments
from launch.devices.cards import visible_devices
from launch.errors import UserError
from launch.plan.hardware import Card, card_named
from launch.processes.command import LaunchCommand
from launch.processes.logs import last_lines, log_path
from launch.reporting.records import read_train_log

ROOT = Path(__file__).resolve().parents[2]
PRETRAIN = ROOT / "launch" / "run_pretrain.py"
MATERIALS = "llama-rehearsal"  # the tiny model of the checks: 4 layers of 64, 332,352 parameters
# Matrix products of float32 in float32: with TF32, which cuBLAS uses by itself, they have 11 bits.
# https://docs.nvidia.com/cuda/cublas/#environment-variables
FULL_FLOAT32 = {"NVIDIA_TF32_OVERRIDE": "0"}
PRETENDED_CAPABILITY = (8, 0)  # of an A100

Dtype = Literal["float32", "float16", "bfloat16"]


class CheckFailed(Exception):
    """A run that a check needs did not end as it should."""


@dataclass
class Bench:
    """The tools of one check.

    Attributes:
        directory: Of this check.
        materials: The tiny model and its data (launch/rehearsal/materials.py).
        cards: Their number, or the number of processes that a pretended run uses instead.
    """

    directory: Path
    materials: Path
    cards: int
    pretend: bool
    rows: list[CheckRow] = field(default_factory=list)

    # ---- report

    def row(
        self, what: str, expected: str, found: str, ok: bool | None, anywhere: bool = False, **numbers: object
    ) -> None:
        """Report one comparison and store it at once, so that a later crash does not lose it.

        ok: None where nothing could be compared. anywhere: the result of a pretended run counts, too.
        """
        mark = OPEN if ok is None or (ok and self.pretend and not anywhere) else PASS if ok else FAIL
        self.rows.append(CheckRow(what, expected, without_paths(found, self.directory.parent), mark, numbers))
        write_json(self.directory / "rows.json", [asdict(row) for row in self.rows])

    def needs_cards(self, count: int) -> bool:
        """Return whether there are `count` cards; if not, report it in a row."""
        if self.cards < count:
            self.row("cards", f"{count} or more", f"{self.cards} here", None)
        return self.cards >= count

    # ---- the product's own training

    def train(
        self,
        name: str,
        flags: Flags,
        processes: int = 1,
        on_cpu: bool = False,
        environment: Mapping[str, str] | None = None,
        exit_code: int = 0,
        script: str = PRETRAIN.stem,
    ) -> Path:
        """Train with these flags of a method in self.directory / name, which is returned.

        processes: one a card. on_cpu: on the CPU of this machine, also where there are cards. environment: variables
        for the training.

        Raises:
            CheckFailed: With the end of the log, for another exit code than the expected one.
        """
        output = self.directory / name
        device = "cpu" if self.pretend or on_cpu else "gpu"
        flags = {"device": [device], "output_dir": [str(output)]} | flags
        os.environ.update(environment or {})
        try:
            if self.pretend:
                found = self._train_in_forks(name, flags, processes, script)
            elif on_cpu:
                found = self._train_on_cpu(name, flags, script)
            else:
                found = self._train_on_cards(flags, processes, script)
        finally:
            for variable in environment or {}:
                os.environ.pop(variable)
        if found != exit_code:
            raise CheckFailed(f"{name} ended with exit code {found}: {self.log_end(name)}")
        return output

    def log_end(self, name: str) -> str:
        """Return the end of the ranks' logs: faults found by the checks at the start, else the last line of each rank.

        A rank that was stopped because of another may have none.
        """
        ends, faults = [], []
        for log in sorted((self.directory / name / "log").glob("workerlog.*")):
            text = without_paths(last_lines(log, 60), self.directory.parent)  # before a line is cut inside a path
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            faults += [line for line in lines if "✗" in line]
            ends += [f"rank {log.suffix[1:]}: {lines[-1][:200]}"] if lines else []
        return "; ".join(faults or ends) or "nothing was logged"

    def _train_in_forks(self, name: str, flags: Flags, processes: int, script: str) -> int:
        from launch.processes.fork import run_ranks
        from launch.rehearsal.rehearse import train_rank

        train = partial(train_rank, script, flag_arguments(flags), processes)
        return run_ranks(processes, train, self.directory / name / "log").exit_code

    def _train_on_cards(self, flags: Flags, processes: int, script: str) -> int:
        from launch.processes.supervise import supervise

        devices = visible_devices()[:processes]
        log_dir = os.path.join(flags["output_dir"][0], "log")
        command = LaunchCommand(PRETRAIN.with_stem(script), flags, log_dir, tuple(devices), processes)
        return supervise(command.arguments(), log_dir, processes)

    def _train_on_cpu(self, name: str, flags: Flags, script: str) -> int:
        """Train in one process that sees no card, so that Paddle's GPU build runs on the CPU."""
        log = log_path(self.directory / name / "log", 0)
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(PRETRAIN.with_stem(script)), *flag_arguments(flags)]
        print(shlex.join(command), flush=True)
        with open(log, "wb") as file:
            environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
            return subprocess.run(command, env=environment, stdout=file, stderr=subprocess.STDOUT).returncode


def without_paths(text: str, output: Path) -> str:
    """Hide paths in the report, which is sent to others: its folder is OUTPUT, this repository `.`, home `~`."""
    for folder, name in ((output, "OUTPUT"), (ROOT, "."), (Path.home(), "~")):
        for path in {str(folder), os.path.realpath(folder)} - {"/"}:
            text = re.sub(rf"{re.escape(path)}(?![\w-])", name, text)
    return text


def make_materials(configuration: str) -> Path:
    """Make the tiny model of a family, its tokenizer and its data, if they do not exist. Returns their folder.

    They are made in a process that sees no card: one in which Paddle has initialized CUDA cannot fork others that use
    it.

    Raises:
        UserError: If that fails.
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

    log_dir = directory.with_name(f"{directory.name}.{os.getpid()}.log")  # checks side by side may make the same ones
    if run_ranks(1, make, log_dir, environment={"CUDA_VISIBLE_DEVICES": ""}, time_limit=300).exit_code:
        raise UserError(f"the tiny model {configuration} cannot be made:\n{last_lines(log_path(log_dir, 0))}")
    shutil.rmtree(log_dir)
    return directory


def tiny_pretraining(materials: Path, steps: int, **changes: str) -> Flags:
    """Return the flags of run_pretrain.py for the tiny model: every step logged, nothing saved, nothing evaluated."""
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
    return as_flags(flags | changes)


def as_flags(values: Mapping[str, object]) -> Flags:
    """Return values as flags."""
    return {name: [str(value)] for name, value in values.items()}


class LoggedStep(NamedTuple):
    """One logged step. NaN stands for values that are not finite.

    Attributes:
        grad_norm: Of all gradients, before clipping.
    """

    loss: float
    grad_norm: float


def steps(output: Path) -> list[LoggedStep]:
    """Return the logged steps of a run."""
    logged = [record for record in read_train_log(output) if "loss" in record]
    return [
        LoggedStep(*(math.nan if record[key] is None else record[key] for key in LoggedStep._fields))
        for record in logged
    ]


# ---- what checks of arithmetic share


def half_dtypes(bench: Bench) -> tuple[Dtype, ...]:
    """Return the half precisions that the card computes in."""
    from launch.switches.precision import bf16_obstacle

    return ("float16",) if bf16_obstacle(capability(bench)) else ("float16", "bfloat16")


def capability(bench: Bench) -> tuple[int, int]:
    """Return the card's compute capability."""
    from launch.training.device import compute_capability

    if bench.pretend:
        return PRETENDED_CAPABILITY
    found = compute_capability()
    assert found is not None, "the device is a card"
    return found


def known_card() -> Card | None:
    """Return this card's row of the catalogue; None for a CPU and for a card that it does not have."""
    from launch.training.device import card_name

    try:
        return card_named(card_name()) if card_name() else None
    except UserError:
        return None


def seconds_of(call: Callable, calls: int = 10) -> float:
    """Return the seconds of one call: the mean of several, after one that warms up.

    The device is waited for once, at the end.
    """
    float(call().flatten()[0].astype("float32"))
    started = time.perf_counter()
    for _ in range(calls):
        result = call()
    float(result.flatten()[0].astype("float32"))
    return (time.perf_counter() - started) / calls


def start_paddle(bench: Bench) -> None:
    """Import Paddle as a run does, and take the first card."""
    from launch.entry import start_paddle
    from launch.training.device import set_device

    start_paddle(on_cpu=bench.pretend)
    set_device("cpu" if bench.pretend else "gpu")

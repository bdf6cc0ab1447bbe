"""Training that is killed again and again, beside training that never was."""

from dataclasses import dataclass
from pathlib import Path

from launch.checkpoint.checkpoint_writer import FAULT_POINTS, FAULT_VARIABLE
from launch.checkpoint.manifest import read_manifest
from launch.processes.fork import Outcome
from launch.processes.logs import KILLED, last_lines
from launch.reporting.records import read_train_log
from tests.distributed.cells import ANSWERED, DROPOUT, FULL, INT8, KTO, PAIRS, PRETRAINING, REINFORCEMENT, Cell
from tests.distributed.layouts import DP2, PP2, SINGLE, STAGE2, STAGE3, TP2
from tests.kills.ranks import random_moments
from tests.runs import Runs, as_words

STEPS = 10  # each is saved
EACH_STEP = {"max_steps": STEPS, "save_steps": 1, "do_eval": 0}
RANDOM_KILLS = 2
NUMBERS = ("global_step", "loss", "learning_rate", "grad_norm", "consumed_samples", "consumed_tokens")

VICTIMS = [
    *(Cell(PRETRAINING, layout, EACH_STEP) for layout in (SINGLE, DP2, TP2, PP2, STAGE2, STAGE3)),
    Cell(FULL, DP2, EACH_STEP | DROPOUT),
    Cell(FULL, SINGLE, EACH_STEP | DROPOUT | INT8),
    Cell(PRETRAINING, STAGE2, EACH_STEP | {"use_async_save": 1}),
    Cell(PRETRAINING, SINGLE, EACH_STEP | {"optim": "adafactor", "update_in_backward": 1}),
    Cell(PAIRS, SINGLE, EACH_STEP),
    Cell(PAIRS, SINGLE, EACH_STEP | DROPOUT),
    Cell(PAIRS, SINGLE, EACH_STEP | DROPOUT | KTO),
    Cell(REINFORCEMENT, SINGLE, EACH_STEP | ANSWERED | {"rollout_steps": 2, "rollout_passes": 2}),
]


@dataclass(frozen=True)
class Kill:
    """fault: point of a save where a rank dies; or moment: see tests.kills.ranks.train."""

    fault: str = ""
    moment: tuple = ()


def kills(victim: Cell) -> list[Kill]:
    """At each point of a save, each at another step, then at random moments of the steps behind them."""
    faults = []
    for step, point in enumerate(FAULT_POINTS, start=1):
        of_any_rank = point in ("after-first-file", "between-files")
        faults.append(Kill(fault=f"{point}@{step}:{victim.layout.processes - 1 if of_any_rank else 0}"))
    moments = random_moments(victim.name, RANDOM_KILLS, STEPS - len(FAULT_POINTS), victim.layout.processes)
    return faults + [Kill(moment=(step + len(FAULT_POINTS), rank, seconds)) for step, rank, seconds in moments]


def train(runs: Runs, victim: Cell, output: Path, kill: Kill = Kill()) -> Outcome:
    words = runs.words(**victim.arguments) | {"output_dir": output}
    return runs.ranks.outcome(
        victim.layout.processes,
        "tests.kills.ranks:train",
        victim.method,
        as_words(words),
        list(kill.moment) or None,
        directory=output.with_name(f"{output.name}-log"),
        environment={FAULT_VARIABLE: kill.fault} if kill.fault else None,
        grace=0.2,
    )


def records(output: Path) -> list[list]:
    return [[record[key] for key in NUMBERS] for record in read_train_log(output) if "loss" in record]


def hashes(output: Path, step: int = STEPS) -> dict[str, str]:
    """Return the digest of every file of a checkpoint: weights, moments, random numbers, ledger."""
    return {name: file["sha256"] for name, file in read_manifest(output / f"checkpoint-{step}").files.items()}


def was_killed(outcome: Outcome, output: Path) -> bool:
    """Raises AssertionError with the ends of the ranks' logs where it was not."""
    logs = [last_lines(file) for file in sorted(output.with_name(f"{output.name}-log").glob("workerlog.*"))]
    assert outcome.exit_code == KILLED, "\n---\n".join([str(outcome), *logs])
    return True

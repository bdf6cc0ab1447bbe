"""Training that is killed again and again, beside training that never was."""

from dataclasses import dataclass
from pathlib import Path

from launch.checkpoint.checkpoint_writer import FAULT_POINTS, FAULT_VARIABLE
from launch.checkpoint.manifest import read_manifest
from launch.processes.fork import Outcome
from launch.processes.logs import KILLED, last_lines
from launch.reporting.records import read_train_log
from tests.distributed.layouts import DP2, PP2, SINGLE, STAGE2, STAGE3, TP2, Layout
from tests.kills.ranks import random_moments
from tests.training.finetune_material import argv as finetune_argv

TRAIN = "tests.kills.ranks:train"
STEPS = 10  # each is saved
LORA = ("--lora", "1", "--lora_dropout", "0.2")
INT8 = (*LORA, "--weight_quantize_algo", "weight_only_int8")
KTO = (*LORA, "--loss_type", "kto")
RANDOM_KILLS = 2
NUMBERS = ("global_step", "loss", "learning_rate", "grad_norm", "consumed_samples", "consumed_tokens")


@dataclass(frozen=True)
class Victim:
    """A training in a layout. method: flags of fine-tuning or of DPO, () for pretraining. asynchronous: as it saves."""

    layout: Layout
    method: tuple[str, ...] = ()
    asynchronous: bool = False
    prefers: bool = False

    @property
    def name(self) -> str:
        method = {(): "", LORA: " LoRA", INT8: " LoRA on int8", KTO: " LoRA KTO"}[self.method]
        return f"{self.layout.name}{' DPO' if self.prefers else ''}{method}{' async' if self.asynchronous else ''}"


VICTIMS = [
    *(Victim(layout) for layout in (SINGLE, DP2, TP2, PP2, STAGE2, STAGE3)),
    Victim(DP2, LORA),
    Victim(SINGLE, INT8),
    Victim(STAGE2, asynchronous=True),
    Victim(SINGLE, prefers=True),
    Victim(SINGLE, LORA, prefers=True),
]


@dataclass(frozen=True)
class Kill:
    """fault: point of a save where a rank dies; or moment: see tests.kills.ranks.train."""

    fault: str = ""
    moment: tuple = ()


def kills(victim: Victim) -> list[Kill]:
    """At each point of a save, each at another step, then at random moments of the steps behind them."""
    faults = []
    for step, point in enumerate(FAULT_POINTS, start=1):
        of_any_rank = point in ("after-first-file", "between-files")
        faults.append(Kill(fault=f"{point}@{step}:{victim.layout.processes - 1 if of_any_rank else 0}"))
    moments = random_moments(victim.name, RANDOM_KILLS, STEPS - len(FAULT_POINTS), victim.layout.processes)
    return faults + [Kill(moment=(step + len(FAULT_POINTS), rank, seconds)) for step, rank, seconds in moments]


class Slaughter:
    """materials: {"pretrain": ..., "finetune": ...}, of tests.distributed.training_ranks and
    tests.training.finetune_material."""

    def __init__(self, ranks, materials: dict[str, Path]):
        self.ranks, self.materials = ranks, materials

    def train(self, victim: Victim, output: Path, kill: Kill = Kill()) -> Outcome:
        return self.ranks.outcome(
            victim.layout.processes,
            TRAIN,
            *self._job(victim, output),
            list(kill.moment) or None,
            directory=output.with_name(f"{output.name}-log"),
            environment={FAULT_VARIABLE: kill.fault} if kill.fault else None,
            grace=0.2,
        )

    def _job(self, victim: Victim, output: Path) -> tuple[str, list]:
        flags = ["--max_steps", str(STEPS), "--save_steps", "1", *victim.layout.argv, *victim.method]
        if victim.asynchronous:
            flags += ["--use_async_save", "1"]
        if victim.prefers:
            rows = {"dataset_name_or_path": self.materials["finetune"] / "preferences"}
            return "dpo", [[*finetune_argv(self.materials["finetune"], output, **rows), *flags]]
        if victim.method:
            return "finetune", [[*finetune_argv(self.materials["finetune"], output), *flags], "adamw"]
        return "pretrain", [str(self.materials["pretrain"]), str(output), flags]


def records(output: Path) -> list[list]:
    return [[record[key] for key in NUMBERS] for record in read_train_log(output) if "loss" in record]


def hashes(output: Path, step: int = STEPS) -> dict[str, str]:
    """Of every file of a checkpoint: weights, moments, random numbers, ledger."""
    return {name: file["sha256"] for name, file in read_manifest(output / f"checkpoint-{step}").files.items()}


def was_killed(outcome: Outcome, output: Path) -> bool:
    """Raises AssertionError with the ends of the ranks' logs where it was not."""
    logs = [last_lines(file) for file in sorted(output.with_name(f"{output.name}-log").glob("workerlog.*"))]
    assert outcome.exit_code == KILLED, "\n---\n".join([str(outcome), *logs])
    return True

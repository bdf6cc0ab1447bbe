"""Runs that are cut off and resumed in the same layout, beside runs that never were: what differs, to the last bit."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from launch.checkpoint.manifest import read_manifest
from launch.reporting.records import read_train_log
from tests.distributed.layouts import DP2, LAYOUTS, PP2, SINGLE, STAGE2, STAGE3, TP2, TP2_PP2_SP, Layout, everything_on
from tests.training.finetune_material import argv as finetune_argv

PRETRAIN = "tests.distributed.training_ranks:pretrain"
FINETUNE = "tests.training.finetune_ranks:train"
MINUTES = 10  # that a training may take, on a machine that has other work
LORA = ("--lora", "1", "--lora_dropout", "0.2")
INT8 = (*LORA, "--weight_quantize_algo", "weight_only_int8")
NF4 = (*LORA, "--weight_quantize_algo", "nf4", "--weight_double_quant", "1")
OFFLOAD = (*LORA, "--sharding", "stage3 offload")
PREFIX = ("--prefix_tuning", "1")
NARROW = ("--optim", "adamw_16bit_moment")
NUMBERS = ("global_step", "loss", "learning_rate", "grad_norm", "consumed_tokens")


@dataclass(frozen=True)
class Case:
    """A training in a layout of twice `at` steps, resumed from `at`. method: flags of fine-tuning, () for pretraining,
    where an epoch has 99 samples and a step 8: step 13 begins in the first epoch and ends in the second, the third
    begins in step 25. flags: of both. quick: one of every run of the tests. beside: folders
    of the output that its checkpoints need."""

    layout: Layout
    method: tuple[str, ...] = ()
    at: int = 13
    quick: bool = False
    beside: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, str]:
        """(the layout, what is trained)"""
        kinds = {
            (): "pretraining",
            LORA: "LoRA, dropout 0.2",
            INT8: "LoRA on int8, dropout 0.2",
            NF4: "LoRA on nf4, dropout 0.2",
            OFFLOAD: "LoRA, dropout 0.2, offload",
            PREFIX: "prefix",
            NARROW: "moments in 16 bits",
        }
        accumulation = f" x {self.layout.accumulation} micro batches" if self.layout.accumulation > 1 else ""
        return f"{self.layout.name}{accumulation}", kinds[self.method]

    @property
    def name(self) -> str:
        return ", ".join([*self.words, *(["everything on"] if self.flags else [])])


CASES = [
    Case(SINGLE, quick=True),
    Case(Layout(accumulation=4), at=12),
    *[Case(layout, quick=layout == STAGE3) for layout in LAYOUTS if not layout.slow],
    *[Case(layout, LORA, at=3, quick=layout == PP2) for layout in (SINGLE, DP2, TP2, PP2, STAGE2, STAGE3)],
    *[Case(layout, INT8, at=3) for layout in (SINGLE, STAGE3)],
    Case(TP2, NF4, at=3),
    *[Case(layout, PREFIX, at=3) for layout in (SINGLE, TP2)],
]


# Tried by the tests alone.
BESIDE = [
    Case(STAGE3, OFFLOAD, at=3),
    *[Case(layout, NARROW, at=3) for layout in (TP2, STAGE2, STAGE3)],
    Case(TP2_PP2_SP, at=3, flags=(*everything_on(TP2_PP2_SP), *NARROW)),
    Case(TP2, LORA, at=3, flags=(*everything_on(TP2), *NARROW, "--zero_padding", "1")),
]


@dataclass(frozen=True)
class Outcome:
    """records: of every step, of the uninterrupted and of the resumed run. files: of their last checkpoints, those
    whose bytes differ."""

    records: tuple[list, list]
    files: list[str]

    @property
    def exact(self) -> bool:
        return self.records[0] == self.records[1] and not self.files


def resume(ranks, material: Path, output: Path, case: Case) -> Outcome:
    """Train to the end; then once more from the checkpoint on the way, as a run that was killed there would.

    material: of tests.distributed.training_ranks, or of tests.training.finetune_material where case.method is given.
    """
    whole, resumed = output / "whole", output / "resumed"
    _train(ranks, material, whole, case)
    resumed.mkdir(parents=True)
    shutil.copytree(whole / f"checkpoint-{case.at}", resumed / f"checkpoint-{case.at}")
    for folder in case.beside:
        shutil.copytree(whole / folder, resumed / folder)
    _train(ranks, material, resumed, case)
    files = [read_manifest(run / f"checkpoint-{2 * case.at}").files for run in (whole, resumed)]
    records = [[[record[key] for key in NUMBERS] for record in read_train_log(run)] for run in (whole, resumed)]
    assert len(records[0]) == 2 * case.at and len(records[1]) == case.at
    differing = [name for name in files[0] if files[0][name] != files[1].get(name)]
    return Outcome((records[0][case.at :], records[1]), differing)


def _train(ranks, material: Path, output: Path, case: Case) -> None:
    flags = [
        "--max_steps",
        str(2 * case.at),
        "--save_steps",
        str(case.at),
        *case.layout.argv,
        *case.method,
        *case.flags,
    ]
    if not case.method:
        ranks(case.layout.processes, PRETRAIN, str(material), str(output), flags, time_limit=MINUTES * 60)
        return
    if case.layout.pipeline > 1:
        flags += ["--pipeline_parallel_config", "disable_p2p_cache_shape"]
    ranks(case.layout.processes, FINETUNE, [*finetune_argv(material, output), *flags], "adamw", time_limit=MINUTES * 60)

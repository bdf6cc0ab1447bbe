"""A resumed run is the uninterrupted one to the last bit, in the same layout: losses, learning rates, gradient norms,
and the last checkpoint with its weights, moments and random numbers."""

from pathlib import Path

import pytest

from launch.checkpoint.safetensors_file import read_header
from tests.distributed.resuming import BESIDE, CASES, LORA, resume


@pytest.fixture(scope="module")
def materials(ranks, tmp_path_factory) -> dict:
    """Of pretraining (False) and fine-tuning (True)."""
    root = tmp_path_factory.mktemp("resuming")
    (root / "pretraining").mkdir()
    ranks(1, "tests.distributed.training_ranks:make_material", str(root / "pretraining"), 4)
    ranks(1, "tests.training.finetune_material:make_material", str(root / "finetuning"))
    return {False: root / "pretraining", True: root / "finetuning"}


# Those on more processes are run by benchmarks/resuming.py, but for two that have all combinations in them.
ON_FOUR_OR_EIGHT = ("stage3-2-dp2", "tp2-pp2-stage1-2-sp")
TESTED = [case for case in CASES if case.layout.processes <= 2 or case.layout.name in ON_FOUR_OR_EIGHT]


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=[] if case.quick else [pytest.mark.long]) for case in [*TESTED, *BESIDE]],
)
def test_resumed_equals_uninterrupted(ranks, materials, tmp_path, case):
    outcome = resume(ranks, materials[bool(case.method)], tmp_path, case)
    assert outcome.records[0] == outcome.records[1]
    assert outcome.files == []
    if case.method[: len(LORA)] == LORA:
        assert trained_parameters(tmp_path / "whole" / f"checkpoint-{case.at}") == {"lora_A", "lora_B"}


def trained_parameters(checkpoint: Path) -> set[str]:
    """Last words of the names of all parameters and of those that the optimizer's states belong to."""
    files = {kind: sorted(checkpoint.glob(f"{kind}-*.safetensors")) for kind in ("model", "optimizer")}
    names = {kind: {name for file in files[kind] for name in read_header(file)[0]} for kind in files}
    updated = {name.rpartition("/")[0] for name in names["optimizer"]}
    return {name.rpartition(".")[2] for name in names["model"] | updated}

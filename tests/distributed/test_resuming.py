"""A resumed run is the uninterrupted one to the last bit, in the same layout: losses, learning rates, gradient norms,
and the last checkpoint with its weights, moments and random numbers."""


import pytest

from tests.distributed.resuming import CASES, resume


@pytest.fixture(scope="module")
def materials(ranks, tmp_path_factory) -> dict:
    """Of pretraining (False) and fine-tuning (True)."""
    root = tmp_path_factory.mktemp("resuming")
    (root / "pretraining").mkdir()
    ranks(1, "tests.distributed.training_ranks:make_material", str(root / "pretraining"), 4)
    ranks(1, "tests.training.finetune_material:make_material", str(root / "finetuning"))
    return {False: root / "pretraining", True: root / "finetuning"}


FOUR_D = "tp2-pp2-stage1-2-sp"
# Those on more processes are run by benchmarks/resuming.py, but for one of each combination.
TESTED = [
    case
    for case in CASES
    if case.layout.processes <= 2 or case.layout.name in ("tp2-pp2-sp", "pp2-stage1-2", "stage3-2-dp2", FOUR_D)
]


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=[] if case.quick else [pytest.mark.long]) for case in TESTED],
)
def test_resumed_equals_uninterrupted(ranks, materials, tmp_path, case):
    outcome = resume(ranks, materials[bool(case.method)], tmp_path, case)
    assert outcome.records[0] == outcome.records[1]
    assert outcome.files == []

"""Faults that two ranks show in a training, with their correction and without it."""

import json

import pytest

from launch.reporting.records import read_train_log
from tests.distributed.cells import CHUNKS
from tests.distributed.layouts import PP2
from tests.ranks import WITHOUT
from tests.training.finetune_material import argv

STEPS, ACCUMULATION = 5, 2


def logged(output, key: str) -> list[float]:
    return [record[key] for record in read_train_log(output) if "loss" in record]


def test_shared_weight_counted_twice(ranks, runs, tmp_path):
    """The gradient norm of a pipeline with tied embeddings is that of one process; upstream it is larger."""
    run = runs("pretraining", layout=PP2, model="tied", **CHUNKS)
    single = runs("pretraining", model="tied", loss_chunk_tokens="off")
    assert run.column("grad_norm") == pytest.approx(single.column("grad_norm"), rel=1e-5)
    flags = [*json.loads((run.output.parent / "flags.json").read_text()), "--output_dir", str(tmp_path)]
    without = {WITHOUT: "shared_weight_counted_twice"}
    ranks(2, "tests.runs_ranks:train", "run_pretrain", [*flags, "--max_steps", "1"], [], environment=without)
    assert logged(tmp_path, "grad_norm")[0] > 1.05 * single.column("grad_norm")[0]


@pytest.fixture(scope="module")
def finetuned(ranks, tmp_path_factory):
    """finetuned(n, recompute, without): (what each rank saw after each backward pass, the losses)"""
    root = tmp_path_factory.mktemp("frozen")
    ranks(1, "tests.training.finetune_material:make_material", str(root / "material"))

    def run(n: int, recompute: int, without: str = "") -> tuple[list[list[dict]], list[float]]:
        output = root / f"{n}-{recompute}{without}"
        flags = argv(
            root / "material",
            output,
            lora=1,
            sharding="stage3",
            recompute=recompute,
            max_steps=STEPS,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=ACCUMULATION,
        )
        seen = ranks(n, "tests.upstream.training_ranks:finetune", flags, environment={WITHOUT: without})
        return seen, logged(output, "loss")

    return run


@pytest.mark.parametrize(
    ("n", "recompute"),
    [
        pytest.param(2, 1, marks=pytest.mark.long),
        *(pytest.param(*one, marks=pytest.mark.nightly) for one in ((2, 0), (4, 0), (4, 1))),
    ],
)
def test_stage3_frozen_parameters(finetuned, n, recompute):
    """They are slices again after each backward pass, upstream they stay whole. The allocator counts what is saved, no
    loss differs."""
    seen, losses = finetuned(n, recompute)
    for one in seen:
        assert len(one) == STEPS * ACCUMULATION
        assert [after["whole"] for after in one] == [0] * len(one)
        assert all(after["tensors"] == n * after["slices"] > 0 for after in one)
    upstream, same = finetuned(n, recompute, "stage3_frozen_parameters")
    assert losses == same
    for corrected, stock in zip(seen, upstream, strict=True):
        assert stock[-1]["whole"] >= 14  # all but those of the embedding and the layers that pass no gradient on
        whole_bytes = stock[-1]["tensors"] - n * stock[-1]["slices"]
        saved = stock[-1]["allocated"] - corrected[-1]["allocated"]
        assert saved >= whole_bytes - whole_bytes // n

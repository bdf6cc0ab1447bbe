"""Faults that two ranks show in a training, with their correction and without it."""

import pytest

from launch.reporting.records import read_train_log
from tests.ranks import WITHOUT
from tests.training.finetune_material import argv

STEPS, ACCUMULATION = 5, 2
PIPELINE = ["--pipeline_parallel_degree", "2", "--per_device_train_batch_size", "4"]
PIPELINE += ["--gradient_accumulation_steps", "2"]


def logged(output, key: str) -> list[float]:
    return [record[key] for record in read_train_log(output) if "loss" in record]


def test_shared_weight_counted_twice(ranks, tmp_path):
    """The gradient norm of a pipeline with tied embeddings."""
    ranks(1, "tests.distributed.training_ranks:make_material", str(tmp_path), 4, {"tie_word_embeddings": True})

    def norms(n: int, flags: list[str], without: str = "") -> list[float]:
        output = tmp_path / f"{n}{without}"
        train = "tests.distributed.training_ranks:pretrain"
        ranks(n, train, str(tmp_path), str(output), [*flags, "--max_steps", "3"], environment={WITHOUT: without})
        return logged(output, "grad_norm")

    single = norms(1, ["--per_device_train_batch_size", "8"])
    assert norms(2, PIPELINE) == pytest.approx(single, rel=1e-5)
    assert norms(2, PIPELINE, "shared_weight_counted_twice")[0] > 1.05 * single[0]


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

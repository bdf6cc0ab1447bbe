"""Frozen parameters under sharding stage 3, beside adapters: slices again after each backward pass."""

import pytest

from launch.reporting.records import read_train_log
from tests.training.finetune_material import argv

FINETUNE = "tests.upstream.stage3_frozen_ranks:finetune"
STEPS, ACCUMULATION = 5, 2


@pytest.fixture(scope="module")
def finetuned(ranks, tmp_path_factory):
    """finetuned(n, recompute, corrected): (what each rank saw after each backward pass, the losses), done once."""
    root = tmp_path_factory.mktemp("frozen")
    ranks(1, "tests.training.finetune_material:make_material", str(root / "material"))
    done = {}

    def run(n: int, recompute: int, corrected: bool = True):
        key = (n, recompute, corrected)
        if key not in done:
            output = root / "-".join(map(str, key))
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
            seen = ranks(n, FINETUNE, flags, corrected)
            done[key] = seen, [record["loss"] for record in read_train_log(output) if "loss" in record]
        return done[key]

    return run


@pytest.mark.long
@pytest.mark.parametrize("recompute", [0, 1])
@pytest.mark.parametrize("n", [2, 4])
def test_are_slices_after_each_backward_pass(finetuned, n, recompute):
    for seen in finetuned(n, recompute)[0]:
        assert len(seen) == STEPS * ACCUMULATION
        assert [one["whole"] for one in seen] == [0] * len(seen)
        assert all(one["tensors"] == n * one["slices"] > 0 for one in seen)


@pytest.mark.long
@pytest.mark.parametrize("recompute", [0, 1])
def test_are_whole_upstream(finetuned, recompute):
    """The allocator counts what the correction saves, no loss differs."""
    seen, losses = finetuned(2, recompute)
    upstream, same = finetuned(2, recompute, corrected=False)
    assert losses == same
    for corrected, stock in zip(seen, upstream, strict=True):
        whole = stock[-1]["whole"]
        assert whole >= 14  # all but those of the embedding and the layers that pass no gradient on
        whole_bytes = stock[-1]["tensors"] - 2 * stock[-1]["slices"]
        saved = stock[-1]["allocated"] - corrected[-1]["allocated"]
        assert saved >= whole_bytes - whole_bytes // 2

"""Weights in half precision with float32 master weights: resumed to the bit in the same layout, and divided anew in
another one, the loss scaler's state with them."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from launch.checkpoint.manifest import read_manifest
from launch.reporting.records import read_train_log
from tests.distributed.layouts import PP2, SINGLE, STAGE2, STAGE3, TP2, Layout

STEPS, SAVED = 8, 4
BF16 = ("--bf16", "1", "--fp16_opt_level", "O2")
# A scale that overflows at first: skipped steps until it has halved often enough, then it doubles every three steps.
FP16 = ("--fp16", "1", "--fp16_opt_level", "O2", "--scale_loss", "33554432", "--loss_scale_window", "3")
# Gradients that are summed in float32.
MASTER = ("--amp_master_grad", "1", *FP16)
# Rounded after each operator: two layouts differ by half a unit in the last place of bfloat16 (2^-9) in what they add.
LOSS_TOLERANCE = 2e-3
NUMBERS = ("global_step", "loss", "learning_rate", "grad_norm", "loss_scale", "skipped_steps")

long, nightly = pytest.mark.long, pytest.mark.nightly


class Runs:
    """Trainings to the end, in a layout and a precision; done once, and continued from the checkpoint on the way."""

    def __init__(self, ranks, root: Path):
        self.ranks, self.root = ranks, root
        self._whole: dict[tuple, tuple[Path, dict]] = {}
        ranks(1, "tests.distributed.training_ranks:make_material", str(root), 4)

    def whole(self, layout: Layout, precision: tuple) -> tuple[Path, dict[str, dict]]:
        """Its output, and what its ranks saw (tests/checkpoint/half_ranks.py)."""
        if (layout, precision) not in self._whole:
            output = self.root / f"{layout.name}-{precision[0]}"
            self._whole[layout, precision] = output, self._train(layout, output, precision)
        return self._whole[layout, precision]

    def continued(self, before: Layout, after: Layout, precision: tuple) -> tuple[Path, dict[str, dict]]:
        output, name = self.root / f"{before.name}-to-{after.name}-{precision[0]}", f"checkpoint-{SAVED}"
        shutil.copytree(self.whole(before, precision)[0] / name, output / name)
        return output, self._train(after, output, precision)

    def _train(self, layout: Layout, output: Path, precision: tuple) -> dict[str, dict]:
        flags = [*layout.argv, *precision, "--max_steps", str(STEPS), "--save_steps", str(SAVED)]
        seen = self.ranks(layout.processes, "tests.checkpoint.half_ranks:pretrain", str(self.root), str(output), flags)
        return {event: {k: v for rank in seen for k, v in rank[event].items()} for event in seen[0]}


@pytest.fixture(scope="module")
def runs(ranks, tmp_path_factory) -> Runs:
    return Runs(ranks, tmp_path_factory.mktemp("half"))


def numbers(output: Path) -> list[list]:
    return [[record.get(key) for key in NUMBERS] for record in read_train_log(output)]


def hashes(output: Path) -> dict[str, str]:
    return {name: file["sha256"] for name, file in read_manifest(output / f"checkpoint-{STEPS}").files.items()}


@pytest.mark.parametrize(
    ("layout", "precision"),
    [
        pytest.param(SINGLE, FP16, id="single, fp16", marks=long),
        pytest.param(STAGE3, BF16, id="stage3, bf16", marks=long),
        *(pytest.param(one, BF16, id=f"{one.name}, bf16", marks=nightly) for one in (TP2, STAGE2)),
        *(pytest.param(one, MASTER, id=f"{one.name}, float32 gradients", marks=nightly) for one in (SINGLE, STAGE3)),
    ],
)
def test_resumed_in_the_same_layout_is_the_uninterrupted_run(runs, layout, precision):
    whole, _ = runs.whole(layout, precision)
    resumed, _ = runs.continued(layout, layout, precision)
    assert numbers(resumed) == numbers(whole)[SAVED:]
    assert hashes(resumed) == hashes(whole)


@long
def test_the_loss_scale_moves_before_and_after_the_checkpoint_and_is_in_it(runs):
    whole, seen = runs.whole(SINGLE, FP16)
    scales = [record["loss_scale"] for record in read_train_log(whole)]
    assert len(set(scales[:SAVED])) > 1 and len(set(scales[SAVED:])) > 1, scales
    assert f"[{scales[SAVED - 1]}]" in seen[f"saved {SAVED}"]["scaler"]


@pytest.mark.parametrize(
    ("before", "after", "precision"),
    [
        pytest.param(before, after, precision, id=f"{before.name} to {after.name}, {precision[0][2:]}", marks=tier)
        for before, after, precision, tier in [
            (STAGE3, TP2, BF16, long),
            (SINGLE, PP2, FP16, long),
            (TP2, SINGLE, BF16, nightly),
            (PP2, TP2, BF16, nightly),
            (STAGE2, STAGE3, BF16, nightly),
        ]
    ],
)
def test_master_weights_and_scale_are_those_that_were_saved(runs, before, after, precision):
    """Every tensor, put together of what the ranks have, is what it was in its own dtype; losses are nearly so."""
    whole, seen = runs.whole(before, precision)
    continued, there = runs.continued(before, after, precision)
    saved = seen[f"saved {SAVED}"]
    assert sum(name.endswith("/master_weight float32") for name in saved) == 39  # tensors of the model
    assert ("scaler" in saved) == (precision == FP16)
    assert there["restored"] == saved
    losses = [np.array([record["loss"] for record in read_train_log(one)]) for one in (whole, continued)]
    assert np.abs(losses[0][SAVED:] - losses[1]).max() <= LOSS_TOLERANCE

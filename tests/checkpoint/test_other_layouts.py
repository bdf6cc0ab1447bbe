"""A run continues in another layout: with the losses of one process that went on, and the data where they stopped."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from launch.processes.logs import last_lines, log_path
from launch.reporting.records import read_train_log
from tests.distributed.layouts import DP2, PP2, SINGLE, STAGE2, STAGE3, TP2, Layout
from tests.distributed.parity import CASES, LOSS_TOLERANCE, STEPS, Runs

STAGE1 = Layout(stage=1, sharding=2)
TP2_PP2 = Layout(tensor=2, pipeline=2, accumulation=4)
ALL_FOUR = Layout(tensor=2, pipeline=2, stage=1, sharding=2, sequence_parallel=True, accumulation=4)
SAVED = STEPS // 2

long, nightly = pytest.mark.long, pytest.mark.nightly


class Interrupted:
    """Trainings that are saved in one layout, and continued in others."""

    def __init__(self, ranks, root: Path, *flags: str):
        self.ranks, self.root, self.flags = ranks, root, flags
        self.runs = Runs(ranks, root)
        self._saved: dict[Layout, Path] = {}

    def saved(self, layout: Layout) -> Path:
        """The output of a run that ended after the first half."""
        if layout not in self._saved:
            output = self.root / f"saved-{layout.name}"
            self._train(layout, output, "--max_steps", str(SAVED), "--save_steps", str(SAVED))
            self._saved[layout] = output
        return self._saved[layout]

    def continued(self, before: Layout, after: Layout) -> Path:
        output = self.root / f"{before.name}-to-{after.name}"
        checkpoint = self.saved(before) / f"checkpoint-{SAVED}"
        shutil.copytree(checkpoint, output / checkpoint.name)
        said = self._train(after, output)
        assert f"{checkpoint.name} is of another layout: all continues but random numbers (dropout)" in said
        return output

    def _train(self, layout: Layout, output: Path, *argv: str) -> str:
        """What rank 0 said."""
        log = output.with_name(f"{output.name}-log")
        flags = [str(self.root), str(output), [*layout.argv, *self.flags, *argv]]
        outcome = self.ranks.outcome(layout.processes, f"{CASES}:pretrain", *flags, directory=log)
        assert outcome.exit_code == 0, last_lines(log_path(log, outcome.failed_rank or 0))
        return log_path(log, 0).read_text()


MOMENTS_TOLERANCE = 2e-3  # of losses: other ranks round other elements up


@pytest.fixture(scope="module")
def interrupted(ranks, tmp_path_factory) -> Interrupted:
    return Interrupted(ranks, tmp_path_factory.mktemp("layouts"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(before, after, id=f"{before.name} to {after.name}", marks=marks)
        for before, after, marks in [
            (TP2, SINGLE, []),
            (PP2, TP2, long),
            (STAGE1, STAGE2, long),
            (STAGE3, TP2_PP2, long),
            (ALL_FOUR, TP2, long),
            (SINGLE, TP2, nightly),
            (PP2, SINGLE, nightly),
            (DP2, Layout(data=4), nightly),
            (STAGE2, STAGE3, nightly),
            (STAGE3, SINGLE, nightly),
            (SINGLE, STAGE3, nightly),
            (TP2, STAGE3, nightly),
        ]
    ],
)
def test_losses_are_those_of_one_process_that_went_on(interrupted, before, after):
    expected = interrupted.runs.adamw(SINGLE)
    records = read_train_log(interrupted.continued(before, after))
    assert [record["global_step"] for record in records] == list(range(SAVED + 1, STEPS + 1))
    assert records[0]["consumed_samples"] == (SAVED + 1) * 8
    for key, tolerance in (("loss", LOSS_TOLERANCE), ("grad_norm", 2e-5)):
        found = np.array([record[key] for record in records])
        assert np.abs(found - expected.column(key)[SAVED:]).max() <= tolerance, key


@nightly
def test_moments_in_16_bits_continue_in_another_layout(ranks, interrupted, tmp_path):
    narrow = Interrupted(ranks, tmp_path, "--optim", "adamw_16bit_moment")
    losses = [record["loss"] for record in read_train_log(narrow.continued(TP2, STAGE3))]
    assert np.abs(np.array(losses) - interrupted.runs.adamw(SINGLE).column("loss")[SAVED:]).max() <= MOMENTS_TOLERANCE

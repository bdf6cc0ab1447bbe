"""A run continues in another layout: with the losses of one process that went on, and the data where they stopped."""

import numpy as np
import pytest

from tests.distributed.layouts import DP2, PP2, SINGLE, STAGE2, STAGE3, TP2, TP2_PP2, Layout
from tests.distributed.parity import LOSS_TOLERANCE
from tests.runs import STEPS

STAGE1 = Layout(stage=1, sharding=2)
ALL_FOUR = Layout(tensor=2, pipeline=2, stage=1, sharding=2, sequence_parallel=True, accumulation=4)
SAVED = STEPS // 2
MOMENTS_TOLERANCE = 2e-3  # of losses: other ranks round other elements up

long, nightly = pytest.mark.long, pytest.mark.nightly


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
def test_losses_are_those_of_one_process_that_went_on(runs, before, after):
    expected = runs("pretraining")
    run = runs.continued("pretraining", before=before, layout=after)
    assert f"checkpoint-{SAVED} is of another layout: all continues but random numbers (dropout)" in run.stdout
    assert list(run.column("global_step")) == list(range(SAVED + 1, STEPS + 1))
    assert run.column("consumed_samples")[0] == (SAVED + 1) * 8
    for key, tolerance in (("loss", LOSS_TOLERANCE), ("grad_norm", 2e-5)):
        assert np.abs(run.column(key) - expected.column(key)[SAVED:]).max() <= tolerance, key


@nightly
def test_moments_in_16_bits_continue_in_another_layout(runs):
    narrow = runs.continued("pretraining", before=TP2, layout=STAGE3, optim="adamw_16bit_moment")
    assert np.abs(narrow.column("loss") - runs("pretraining").column("loss")[SAVED:]).max() <= MOMENTS_TOLERANCE

"""Weights in half precision with float32 master weights: resumed to the bit in the same layout, and divided anew in
another one, the loss scaler's state with them."""

import numpy as np
import pytest

from tests.distributed.cells import PRETRAINING, Cell
from tests.distributed.layouts import PP2, SINGLE, STAGE2, STAGE3, TP2
from tests.distributed.parity import continued_apart
from tests.runs import Run

STEPS, SAVED = 8, 4
HALF = {"observers": ["tests.checkpoint.half_ranks:observe"], "fp16_opt_level": "O2"}
HALF |= {"max_steps": STEPS, "save_steps": SAVED, "do_eval": 0}
BF16 = HALF | {"bf16": 1}
# A scale that overflows at first: skipped steps until it has halved often enough, then it doubles every three steps.
# The rate falls by the others.
FP16 = HALF | {"fp16": 1, "scale_loss": 33554432, "loss_scale_window": 3, "lr_scheduler_type": "linear"}
# Gradients that are summed in float32.
MASTER = FP16 | {"amp_master_grad": 1}
# Rounded after each operator: two layouts differ by half a unit in the last place of bfloat16 (2^-9) in what they add.
LOSS_TOLERANCE = 2e-3

long, nightly = pytest.mark.long, pytest.mark.nightly


def seen(run: Run, event: str) -> dict[str, str]:
    """What all ranks saw at an event (tests/checkpoint/half_ranks.py)."""
    return {name: digest for facts in run.facts for name, digest in facts[event].items()}


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
    cell = Cell(PRETRAINING, layout, precision)
    assert continued_apart(runs, cell) == []
    whole, resumed = runs(**cell.arguments), runs.continued(**cell.arguments)
    for key in ("loss_scale", "skipped_steps"):
        numbers = [[step.get(key) for step in run.steps] for run in (whole, resumed)]
        assert numbers[0][SAVED:] == numbers[1]


@long
def test_the_loss_scale_moves_before_and_after_the_checkpoint_and_is_in_it(runs):
    run = runs(PRETRAINING, **FP16)
    scales = run.column("loss_scale").tolist()
    assert len(set(scales[:SAVED])) > 1 and len(set(scales[SAVED:])) > 1, scales
    assert f"[{scales[SAVED - 1]}]" in seen(run, f"saved {SAVED}")["scaler"]


@pytest.mark.parametrize(
    ("before", "after", "precision"),
    [
        pytest.param(
            before,
            after,
            precision,
            id=f"{before.name} to {after.name}, {'fp16' if precision == FP16 else 'bf16'}",
            marks=tier,
        )
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
    whole = runs(PRETRAINING, layout=before, **precision)
    continued = runs.continued(PRETRAINING, before=before, layout=after, **precision)
    saved = seen(whole, f"saved {SAVED}")
    assert sum(name.endswith("/master_weight float32") for name in saved) == 21  # tensors of the model
    assert ("scaler" in saved) == (precision == FP16)
    assert seen(continued, "restored") == saved
    assert np.abs(whole.column("loss")[SAVED:] - continued.column("loss")).max() <= LOSS_TOLERANCE

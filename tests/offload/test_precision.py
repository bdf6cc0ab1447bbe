"""Offload in half precision with float32 master weights, and beside a loss scale: as without it, to the bit."""

import numpy as np
import pytest

from launch.checkpoint.manifest import read_manifest
from tests.distributed.layouts import Layout

STEPS = 5
USUAL = {"max_steps": STEPS, "save_steps": STEPS, "do_eval": 0}
BF16 = USUAL | {"bf16": 1, "fp16_opt_level": "O2", "observers": ["tests.checkpoint.half_ranks:observe"]}
# Arithmetic in float32, which so large a scale overflows at first; then it doubles every two steps.
SCALED = USUAL | {"fp16": 1, "fp16_opt_level": "O1", "scale_loss": 2.0**127, "loss_scale_window": 2}


@pytest.mark.parametrize(
    ("precision", "stage"),
    [
        pytest.param(BF16, "stage3", id="bf16-stage3", marks=pytest.mark.long),
        pytest.param(BF16, "stage2", id="bf16-stage2", marks=pytest.mark.nightly),
        pytest.param(SCALED, "stage2", id="loss scale-stage2", marks=pytest.mark.nightly),
        pytest.param(SCALED, "stage3", id="loss scale-stage3", marks=pytest.mark.nightly),
    ],
)
def test_is_the_run_without_offload_to_the_bit(runs, precision, stage):
    layout = Layout(stage=int(stage[-1]), sharding=2, accumulation=2)
    shardings = (stage, f"{stage} offload")
    pair = [runs("pretraining", layout=layout, **precision, sharding=[sharding]) for sharding in shardings]
    for key in ("loss", "grad_norm", *(("loss_scale", "skipped_steps") if precision == SCALED else ())):
        np.testing.assert_array_equal(*(run.column(key) for run in pair))
    manifests = (read_manifest(run.output / f"checkpoint-{STEPS}").files for run in pair)
    files = [{name: file for name, file in one.items() if name.endswith("safetensors")} for one in manifests]
    assert files[0] and files[1] == files[0]  # weights, master weights, moments
    if precision == SCALED:
        assert set(pair[0].column("skipped_steps")) == {0, 1}

"""Gradients in half precision: their norm, what is clipped by it, the loss scale and float32 sums, in every layout."""

from dataclasses import replace

import pytest

from launch.reporting.records import read_train_log
from tests.distributed.layouts import DP2, PP2, SINGLE, STAGE2, STAGE3, TP2, Layout
from tests.runs import as_words

TRAIN = "tests.training.half_gradient_ranks:train"
STAGE1 = Layout(stage=1, sharding=2)
TP2_STAGE2 = Layout(tensor=2, stage=2, sharding=2)
SMALL = 2.0**-8  # gradients times this: their squares are below half of the smallest float16, 2^-25
MAX_NORM = 0.2  # of gradients as they are
FP16 = {"fp16": 1, "fp16_opt_level": "O2", "scale_loss": 4096}
MASTER = FP16 | {"amp_master_grad": 1}
USUAL = {"max_steps": 2, "loss_watch": 0, "do_eval": 0}
# paddle.DataParallel reduces in C++, where gloo cannot add float16; with recompute the Trainer does that itself.
IN_PYTHON = {DP2: {"recompute": 1}}

long = pytest.mark.long


@pytest.fixture(scope="module")
def run(ranks, runs, tmp_path_factory):
    """(|g| of each step, what each rank saw) of a training of 2 steps, done once."""
    done = {}

    def train(layout: Layout, factor: float, **flags) -> tuple[list[float], list[dict]]:
        key = str((layout, factor, flags))
        if key not in done:
            output = tmp_path_factory.mktemp("half") / "out"
            flags = USUAL | IN_PYTHON.get(layout, {}) | {"max_grad_norm": factor * MAX_NORM} | flags
            words = as_words(runs.words("pretraining", layout, "deep", output_dir=output, **flags))
            seen = ranks(layout.processes, TRAIN, words, factor)
            done[key] = [record["grad_norm"] for record in read_train_log(output)], seen
        return done[key]

    return train


ALL = [
    STAGE3,
    *(pytest.param(one, marks=long) for one in (SINGLE, PP2, TP2_STAGE2)),
    *(pytest.param(one, marks=pytest.mark.nightly) for one in (DP2, TP2, STAGE1, STAGE2)),
]


@pytest.mark.parametrize("layout", ALL, ids=lambda layout: layout.name)
def test_norm_of_small_gradients_is_that_of_float32_and_they_are_clipped_to_it(run, layout):
    check(run, layout, SMALL, FP16, "float16")


@pytest.mark.parametrize("layout", ALL, ids=lambda layout: layout.name)
def test_gradients_that_are_summed_in_float32_are_unscaled_and_clipped(run, layout):
    check(run, replace(layout, accumulation=max(layout.accumulation, 2)), 1.0, MASTER, "float32")


def check(run, layout: Layout, factor: float, flags: dict, dtype: str) -> None:
    expected, _ = run(SINGLE, factor)
    norms, seen = run(layout, factor, **flags)
    assert norms == pytest.approx(expected, rel=0.02)
    assert min(norms) > 2 * factor * MAX_NORM
    for rank in seen:
        assert rank["clipped"] == pytest.approx([factor * MAX_NORM / norm for norm in norms], rel=0.01)
        assert rank["dtypes"] == [dtype]


@pytest.mark.parametrize(
    "layout",
    [pytest.param(SINGLE, marks=long), pytest.param(DP2, marks=pytest.mark.nightly)],
    ids=lambda layout: layout.name,
)
def test_a_step_whose_gradients_overflow_is_skipped_where_they_are_summed_in_float32(ranks, runs, tmp_path, layout):
    """A scale of 2^24 halves with each step until no gradient is infinite in float16."""
    scaling = {"scale_loss": 16777216, "loss_scale_hysteresis": 1, "max_steps": 6}
    flags = USUAL | MASTER | scaling | {"output_dir": tmp_path}
    words = as_words(runs.words("pretraining", replace(layout, accumulation=2), "deep", **flags))
    ranks(layout.processes, TRAIN, words, 1.0)
    records = read_train_log(tmp_path)
    skipped = [record["skipped_steps"] for record in records]
    assert skipped[0] == 1 and skipped[-1] == 0 and skipped == sorted(skipped, reverse=True)
    assert records[-1]["loss_scale"] == 2.0 ** (24 - sum(skipped))
    assert all(0 < record["loss"] < 6 for record in records) and 0.5 < records[-1]["grad_norm"] < 2

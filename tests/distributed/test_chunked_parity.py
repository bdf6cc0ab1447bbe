"""The loss in chunks in every layout: losses, gradient norms, weights after a plain SGD step and evaluation are those
of whole batches in the same layout."""

import numpy as np
import pytest

from tests.distributed.layouts import SINGLE, TP2, TP2_SP, Layout
from tests.distributed.parity import Runs

LOSS_BOUND, GRADIENT_BOUND = 2e-6, 1e-5
CHUNKS = ("--loss_chunk_tokens", "24")  # of 256 tokens a micro batch or fewer, and none a multiple of 24
QUICK = [TP2_SP, Layout(pipeline=2, accumulation=4)]
SLOW = [
    SINGLE,
    TP2,
    Layout(stage=3, sharding=2),
    Layout(data=2, accumulation=2),
    Layout(stage=1, sharding=2),
    Layout(stage=2, sharding=2, accumulation=2),
    Layout(tensor=2, pipeline=2, accumulation=4, sequence_parallel=True),
    Layout(tensor=2, stage=2, sharding=2),
]


@pytest.fixture(scope="module")
def runs(ranks, tmp_path_factory) -> Runs:
    return Runs(ranks, tmp_path_factory.mktemp("chunked"))


@pytest.mark.parametrize(
    "layout",
    [*QUICK, *(pytest.param(layout, marks=pytest.mark.long) for layout in SLOW)],
    ids=lambda layout: layout.name,
)
def test_numbers_of_whole_batches(runs, layout):
    whole, chunked = runs.adamw(layout), runs.adamw(layout, *CHUNKS)
    assert np.abs(chunked.column("loss") - whole.column("loss")).max() <= LOSS_BOUND
    assert np.abs(chunked.column("grad_norm") / whole.column("grad_norm") - 1).max() <= GRADIENT_BOUND
    evaluations = [run.summary["evaluation"]["eval_loss"] for run in (whole, chunked)]
    assert abs(evaluations[1] - evaluations[0]) <= LOSS_BOUND
    whole, chunked = runs.sgd_step(layout), runs.sgd_step(layout, *CHUNKS)
    for name, start in runs.initial_weights.items():
        change = np.abs(whole.weights[name] - start).max()
        assert np.abs(chunked.weights[name] - whole.weights[name]).max() <= GRADIENT_BOUND * change, name

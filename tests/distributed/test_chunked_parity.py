"""The loss in chunks in every layout: losses, gradient norms, weights after a plain SGD step and evaluation are those
of whole batches in the same layout."""

import functools

import numpy as np
import pytest

from tests.distributed.finetuning import FinetuneRuns, LoraRuns, PrefixRuns
from tests.distributed.layouts import PP2, SINGLE, TP2, TP2_SP, Layout
from tests.distributed.parity import UPDATE_TOLERANCE, Runs

LOSS_BOUND, GRADIENT_BOUND = 2e-6, 1e-5
CHUNKS = ("--loss_chunk_tokens", "24")  # of 256 tokens a micro batch or fewer, and none a multiple of 24
WHOLE = ("--loss_chunk_tokens", "off")
QUICK = [TP2_SP, Layout(pipeline=2, accumulation=4)]
SLOW = [
    SINGLE,
    TP2,
    Layout(stage=3, sharding=2),
    Layout(data=2, accumulation=2),
    Layout(stage=2, sharding=2, accumulation=2),
    Layout(tensor=2, pipeline=2, accumulation=4, sequence_parallel=True),
]
METHODS = {
    "full": (FinetuneRuns, ()),
    "packed": (FinetuneRuns, ("--zero_padding", "1")),
    "lora": (LoraRuns, ("--lora", "1", "--lora_rank", "4")),
    "prefix": (PrefixRuns, ("--prefix_tuning", "1", "--num_prefix_tokens", "6")),
}


@pytest.fixture(scope="module")
def runs(ranks, tmp_path_factory) -> Runs:
    return Runs(ranks, tmp_path_factory.mktemp("chunked"))


@pytest.mark.parametrize(
    "layout",
    [*QUICK, *(pytest.param(layout, marks=pytest.mark.long) for layout in SLOW)],
    ids=lambda layout: layout.name,
)
def test_numbers_of_whole_batches(runs, layout):
    assert_equal(runs, layout, layout, GRADIENT_BOUND)


def test_a_tied_head_at_the_end_of_a_pipeline(ranks, tmp_path):
    """The gradient of the one matrix is that of the first stage's embedding and of the last one's chunks."""
    tied = Runs(ranks, tmp_path, changes={"tie_word_embeddings": True})
    assert_equal(tied, SINGLE, Layout(pipeline=2, accumulation=4), UPDATE_TOLERANCE)


def assert_equal(runs: Runs, of_whole: Layout, of_chunks: Layout, update_bound: float) -> None:
    """update_bound: of a tensor after a plain SGD step, relative to its largest change."""
    whole, chunked = runs.adamw(of_whole, *WHOLE), runs.adamw(of_chunks, *CHUNKS)
    assert np.abs(chunked.column("loss") - whole.column("loss")).max() <= LOSS_BOUND
    assert np.abs(chunked.column("grad_norm") / whole.column("grad_norm") - 1).max() <= GRADIENT_BOUND
    evaluations = [run.summary["evaluation"]["eval_loss"] for run in (whole, chunked)]
    assert abs(evaluations[1] - evaluations[0]) <= LOSS_BOUND
    expected, found = runs.sgd_step(of_whole, *WHOLE).weights, runs.sgd_step(of_chunks, *CHUNKS).weights
    for name, values in expected.items():
        change = np.abs(values - runs.initial_weights[name]).max()
        assert np.abs(found[name] - values).max() <= update_bound * change, name


@pytest.fixture(scope="module")
def fine_tunings(ranks, tmp_path_factory):
    """The runs of a method, whole or in chunks."""
    root = tmp_path_factory.mktemp("finetuning")
    ranks(1, "tests.training.finetune_material:make_material", str(root), 4, 0.02)

    @functools.cache
    def runs(method: str, *chunks: str):
        kind, flags = METHODS[method]
        return kind(ranks, root, *flags, *chunks)

    return runs


@pytest.mark.parametrize(
    "method, layout",
    [
        ("lora", TP2),
        *(
            pytest.param(method, layout, marks=pytest.mark.long)
            for method, layout in [
                ("full", PP2),
                ("full", TP2_SP),
                ("packed", SINGLE),
                ("prefix", SINGLE),
                ("lora", PP2),
            ]
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_fine_tuning(fine_tunings, method, layout):
    """Every answer's token weighs the same, and the tokens that were right are counted."""
    whole, chunked = fine_tunings(method, *WHOLE).adamw(layout), fine_tunings(method, *CHUNKS).adamw(layout)
    assert np.abs(chunked.column("loss") - whole.column("loss")).max() <= LOSS_BOUND
    assert np.abs(chunked.column("grad_norm") / whole.column("grad_norm") - 1).max() <= GRADIENT_BOUND
    found, expected = chunked.summary["evaluation"], whole.summary["evaluation"]
    assert abs(found["eval_loss"] - expected["eval_loss"]) <= LOSS_BOUND
    for key in ("eval_tokens", "eval_accuracy"):
        assert found[key] == expected[key] > 0

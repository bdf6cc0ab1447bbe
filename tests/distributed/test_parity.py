"""Every layout gives the single-process numbers: losses, gradient norms, weights after a plain SGD step, evaluation.
And it is the layout that it is called: what each rank holds and computes is looked at from inside."""

from collections import Counter

import numpy as np
import pytest

from launch.families.arithmetic import ModelShape
from launch.families.named_configs import load_config
from tests.distributed import parity
from tests.distributed.layouts import GROUPED_QUERIES, LAYOUTS, RECOMPUTED, SINGLE, STAGE3, TP2, TP2_PP2_SP, TP2_SP
from tests.distributed.parity import EVALUATED_SAMPLES, STEPS, Runs
from tests.distributed.training_ranks import SEQUENCE_LENGTH

HIDDEN, LAYERS = 64, 4
SLOW = [pytest.mark.long]
# Those of two processes and one of four; all others are `make test-long`'s.
QUICK = [layout for layout in LAYOUTS if layout.processes <= 2 or layout == TP2_PP2_SP]


def parameters_of(layouts, quick):
    """Layouts as pytest takes them; those that are not quick are run by `make test-long`."""
    return [pytest.param(layout, id=layout.name, marks=[] if layout in quick else SLOW) for layout in layouts]


every_layout = pytest.mark.parametrize("layout", parameters_of(LAYOUTS, QUICK))


@pytest.fixture(scope="module")
def runs(ranks, tmp_path_factory) -> Runs:
    return Runs(ranks, tmp_path_factory.mktemp("parity"))


@pytest.fixture(scope="module")
def grouped(ranks, tmp_path_factory) -> Runs:
    """Two queries share a key and a value."""
    return Runs(ranks, tmp_path_factory.mktemp("grouped"), key_value_heads=2)


def assert_equal_to_one_process(runs, layout, *argv):
    expected, found = runs.adamw(SINGLE), runs.adamw(layout, *argv)
    assert len(expected.column("loss")) == len(found.column("loss")) == STEPS
    for run in (expected, found):
        assert run.summary["evaluation"]["eval_tokens"] == EVALUATED_SAMPLES * SEQUENCE_LENGTH
    assert parity.beyond_tolerance(runs, layout, *argv) == {}


@every_layout
def test_numbers_of_one_process(runs, layout):
    assert_equal_to_one_process(runs, layout)


@pytest.mark.parametrize("layout", parameters_of(GROUPED_QUERIES, quick=[TP2]))
def test_numbers_of_one_process_with_grouped_queries(grouped, layout):
    assert_equal_to_one_process(grouped, layout)


@every_layout
def test_summary_and_log_count_the_whole_model_and_every_token(runs, layout):
    run = runs.adamw(layout)
    tokens = 8 * SEQUENCE_LENGTH
    assert run.summary["topology"] == {
        "processes": layout.processes,
        "data_parallel_degree": layout.data,
        "sharding_parallel_degree": layout.sharding,
        "tensor_parallel_degree": layout.tensor,
        "pipeline_parallel_degree": layout.pipeline,
    }
    assert run.summary["parameters"] == shape(runs).parameters
    assert run.summary["consumed_tokens"] == STEPS * tokens
    assert run.summary["first_loss"] == run.column("loss")[0]
    assert list(run.column("consumed_tokens")) == [tokens * step for step in range(1, STEPS + 1)]
    speed = run.column("tokens_per_second") * run.column("step_seconds")
    assert speed == pytest.approx([tokens] * STEPS)


@every_layout
def test_each_stage_holds_its_own_layers(runs, layout):
    held = Counter(tuple(facts["layers"]) for facts in runs.adamw(layout).facts)
    assert sorted(layer for layers in held for layer in layers) == list(range(LAYERS))
    assert list(held.values()) == [layout.processes // layout.pipeline] * layout.pipeline


@every_layout
def test_each_rank_computes_its_part_of_heads_and_sequence(runs, layout):
    """Sequence parallel: between two blocks a rank has rows of its own, of samples and positions taken together."""
    whole = [layout.micro_batch, SEQUENCE_LENGTH, HIDDEN]
    part = [layout.micro_batch * SEQUENCE_LENGTH // layout.tensor, HIDDEN]
    for facts in runs.adamw(layout).facts:
        assert facts["block_inputs"] == [part if layout.sequence_parallel else whole]
        assert facts["query_shape"] == [HIDDEN, HIDDEN // layout.tensor]


@every_layout
def test_sharding_keeps_each_number_once(runs, layout):
    """Sums over all ranks: tensor parallel splits matrices and copies norms, stage 3 slices matrices and copies norms,
    every stage shares the optimizer's states of what it does not slice."""
    facts = runs.adamw(layout).facts
    norms = HIDDEN * (2 * LAYERS + 1)
    matrices = shape(runs).parameters - norms
    copies = layout.data * (1 if layout.stage == 3 else layout.sharding)
    norm_copies = layout.data * layout.sharding * layout.tensor
    assert sum(rank["elements"] for rank in facts) == copies * matrices + norm_copies * norms
    norm_states = layout.data * layout.tensor * (layout.sharding if layout.stage == 3 else 1)
    assert sum(rank["state_elements"] for rank in facts) == layout.data * matrices + norm_states * norms


CALLED_TWICE = {
    "full": ["LlamaDecoderLayer", "LlamaAttention", "scaled_dot_product_attention"],
    "full_attn": ["LlamaAttention", "scaled_dot_product_attention"],
    "core_attn": ["scaled_dot_product_attention"],
}


@pytest.mark.parametrize(
    ("granularity", "layout"),
    [
        pytest.param(
            granularity,
            *parameter.values,
            id=f"{granularity}-{parameter.id}",
            marks=parameter.marks,
        )
        for granularity, layouts in RECOMPUTED.items()
        for parameter in parameters_of(layouts, quick=[STAGE3, TP2_SP] if granularity == "full" else [])
    ],
)
def test_recomputation_is_done_and_changes_nothing(runs, granularity, layout):
    plain = runs.adamw(layout)
    recomputed = runs.adamw(layout, "--recompute", "1", "--recompute_granularity", granularity)
    for key in ("loss", "grad_norm"):
        np.testing.assert_array_equal(recomputed.column(key), plain.column(key))
    for before, after in zip(plain.facts, recomputed.facts, strict=True):
        once = STEPS * layout.accumulation * len(before["layers"])
        assert before["calls"] == dict.fromkeys(CALLED_TWICE["full"], once)
        assert after["calls"] == {
            kind: once * (2 if kind in CALLED_TWICE[granularity] else 1) for kind in CALLED_TWICE["full"]
        }


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (TP2, "enable_mp_async_allreduce"),
        (TP2, "enable_mp_async_allreduce,enable_mp_skip_c_identity"),
        (TP2_SP, "enable_sp_async_reduce_scatter"),
    ],
)
def test_tensor_parallel_beside_products_gives_the_numbers_of_one_process(runs, layout, words):
    """--tensor_parallel_overlap sets the words of the last two on cards."""
    expected, found = runs.adamw(SINGLE), runs.adamw(layout, "--tensor_parallel_config", words)
    assert np.abs(found.column("loss") - expected.column("loss")).max() <= parity.LOSS_TOLERANCE
    norms = found.column("grad_norm") / expected.column("grad_norm")
    assert np.abs(norms - 1).max() <= parity.GRAD_NORM_TOLERANCE
    assert found.facts[0]["overlapping"] == 20  # five linear layers in each of four


def test_the_logged_gradient_norm_is_that_of_the_sgd_step(runs):
    """Without clipping the change of all weights is the gradient times the learning rate."""
    run, initial = runs.sgd_step(SINGLE), runs.initial_weights
    changes = [tensor.astype("float64") - initial[name] for name, tensor in run.weights.items()]
    norm = sum(float(np.square(change).sum()) for change in changes) ** 0.5 / parity.SGD_RATE
    assert run.column("grad_norm")[0] == pytest.approx(norm, rel=1e-4)


def test_evaluation_does_not_depend_on_the_micro_batch(runs):
    expected = runs.adamw(SINGLE).summary["evaluation"]
    found = runs.adamw(SINGLE, "--per_device_eval_batch_size", "1").summary["evaluation"]
    assert found["eval_tokens"] == expected["eval_tokens"]
    assert abs(found["eval_loss"] - expected["eval_loss"]) <= parity.LOSS_TOLERANCE


def test_first_loss_on_uniformly_random_ids_is_the_closed_form(runs):
    """ln V + h sigma^2 / 2 within 0.5 %: ids are uniform here, so nothing but the formula is tested."""
    assert runs.adamw(SINGLE).summary["first_loss"] == pytest.approx(shape(runs).first_loss, rel=0.005)


def shape(runs) -> ModelShape:
    return ModelShape.from_config(load_config(str(runs.root / "model")))

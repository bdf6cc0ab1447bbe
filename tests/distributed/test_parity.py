"""Every layout is the layout that it is called: what each rank holds and computes is looked at from inside."""

from collections import Counter

import numpy as np
import pytest

from launch.families.arithmetic import ModelShape
from launch.families.named_configs import load_config
from tests.distributed.cells import PRETRAINING, Cell, model_of
from tests.distributed.layouts import LAYOUTS, RECOMPUTED, SINGLE, STAGE3, TP2, TP2_PP2_SP, TP2_SP
from tests.distributed.parity import LOSS_TOLERANCE, beyond_tolerance
from tests.runs import EVALUATED_SAMPLES, SEQUENCE_LENGTH, SGD_RATE, STEPS, load_weights

HIDDEN, LAYERS, TOKENS = 64, 2, 8 * SEQUENCE_LENGTH
ESSENTIAL = [STAGE3, TP2_PP2_SP]


def shape_of(runs, model: str) -> ModelShape:
    return ModelShape.from_config(load_config(str(runs.material / model)))


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(one, id=one.name, marks=[] if one in ESSENTIAL else [pytest.mark.nightly])
        for one in [SINGLE, *LAYOUTS]
    ],
)
def test_what_each_rank_holds_and_computes(runs, layout):
    run = runs(PRETRAINING, layout=layout, model=model_of(layout))
    shape, facts = shape_of(runs, model_of(layout)), run.facts
    depth = LAYERS * (2 if model_of(layout) == "deep" else 1)
    # Each stage has its own layers.
    held = Counter(tuple(of_rank["layers"]) for of_rank in facts)
    assert sorted(layer for layers in held for layer in layers) == list(range(depth))
    assert list(held.values()) == [layout.processes // layout.pipeline] * layout.pipeline
    # Sequence parallel: between two blocks a rank has rows of its own, of samples and positions taken together.
    whole = [layout.micro_batch, SEQUENCE_LENGTH, HIDDEN]
    part = [layout.micro_batch * SEQUENCE_LENGTH // layout.tensor, HIDDEN]
    for of_rank in facts:
        assert of_rank["block_inputs"] == [part if layout.sequence_parallel else whole]
        assert of_rank["query_shape"] == [HIDDEN, HIDDEN // layout.tensor]
        once = STEPS * layout.accumulation * len(of_rank["layers"])
        assert of_rank["calls"] == dict.fromkeys(CALLED_TWICE["full"], once)
    # Sharding keeps each number once. Sums over all ranks: tensor parallel splits matrices and copies norms, stage 3
    # slices matrices and copies norms, every stage shares the optimizer's states of what it does not slice.
    norms = HIDDEN * (2 * depth + 1)
    matrices = shape.parameters - norms
    copies = layout.data * (1 if layout.stage == 3 else layout.sharding)
    norm_copies = layout.data * layout.sharding * layout.tensor
    assert sum(of_rank["elements"] for of_rank in facts) == copies * matrices + norm_copies * norms
    norm_states = layout.data * layout.tensor * (layout.sharding if layout.stage == 3 else 1)
    assert sum(of_rank["state_elements"] for of_rank in facts) == layout.data * matrices + norm_states * norms
    # The summary and the log count the whole model and every token.
    assert run.summary["topology"] == {
        "processes": layout.processes,
        "data_parallel_degree": layout.data,
        "sharding_parallel_degree": layout.sharding,
        "tensor_parallel_degree": layout.tensor,
        "pipeline_parallel_degree": layout.pipeline,
    }
    assert run.summary["parameters"] == shape.parameters
    assert run.summary["consumed_tokens"] == STEPS * TOKENS
    assert run.summary["first_loss"] == run.column("loss")[0]
    assert run.evaluation["eval_tokens"] == EVALUATED_SAMPLES * SEQUENCE_LENGTH
    assert list(run.column("consumed_tokens")) == [TOKENS * step for step in range(1, STEPS + 1)]
    assert run.column("tokens_per_second") * run.column("step_seconds") == pytest.approx([TOKENS] * STEPS)


CALLED_TWICE = {
    "full": ["LlamaDecoderLayer", "LlamaAttention", "scaled_dot_product_attention"],
    "full_attn": ["LlamaAttention", "scaled_dot_product_attention"],
    "core_attn": ["scaled_dot_product_attention"],
}


@pytest.mark.parametrize(
    ("granularity", "layout"),
    [
        pytest.param(
            kind, layout, id=f"{kind}-{layout.name}", marks=[pytest.mark.long if chosen else pytest.mark.nightly]
        )
        for kind, layouts in RECOMPUTED.items()
        for layout in layouts
        for chosen in [kind == "full" and layout == TP2_PP2_SP]
    ],
)
def test_recomputation_is_done_and_changes_nothing(runs, granularity, layout):
    plain = runs(PRETRAINING, layout=layout)
    recomputed = runs(PRETRAINING, layout=layout, recompute=1, recompute_granularity=granularity)
    for key in ("loss", "grad_norm"):
        np.testing.assert_array_equal(recomputed.column(key), plain.column(key))
    for before, after in zip(plain.facts, recomputed.facts, strict=True):
        once = before["calls"]["LlamaDecoderLayer"]
        assert after["calls"] == {kind: once * (1 + (kind in CALLED_TWICE[granularity])) for kind in before["calls"]}


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        pytest.param(TP2, "enable_mp_async_allreduce,enable_mp_skip_c_identity", marks=pytest.mark.long),
        pytest.param(TP2, "enable_mp_async_allreduce", marks=pytest.mark.nightly),
        pytest.param(TP2_SP, "enable_sp_async_reduce_scatter", marks=pytest.mark.long),
    ],
)
def test_tensor_parallel_beside_products_gives_the_numbers_of_one_process(runs, layout, words):
    """--tensor_parallel_overlap sets the words of the first and the last on cards."""
    cell = Cell(PRETRAINING, layout, {"tensor_parallel_config": words})
    assert beyond_tolerance(runs, cell) == {}
    assert runs(**cell.arguments).facts[0]["overlapping"] == 5 * LAYERS  # linear layers


def test_one_process(runs):
    """The logged norm is that of the SGD step: without clipping the change of all weights is the gradient times the
    rate. An evaluation does not depend on its micro batches. The first loss on uniformly random ids is the closed form,
    ln V + h sigma^2 / 2."""
    run, step = runs(PRETRAINING), runs(PRETRAINING, sgd=1)
    initial = load_weights(runs.material / "model")
    changes = [tensor.astype("float64") - initial[name] for name, tensor in step.weights.items()]
    norm = sum(float(np.square(change).sum()) for change in changes) ** 0.5 / SGD_RATE
    assert step.column("grad_norm")[0] == pytest.approx(norm, rel=1e-4)
    one_by_one = runs(PRETRAINING, per_device_eval_batch_size=1).evaluation
    assert one_by_one["eval_tokens"] == run.evaluation["eval_tokens"]
    assert abs(one_by_one["eval_loss"] - run.evaluation["eval_loss"]) <= LOSS_TOLERANCE
    assert run.summary["first_loss"] == pytest.approx(shape_of(runs, "model").first_loss, rel=0.005)

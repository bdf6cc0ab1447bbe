"""Mixtral and Qwen2-MoE: what their classes lack is refused, experts count as often as tokens are sent to them, every
layout gives the numbers of one process."""

import pytest

from launch.config.layout import Layout as PlannedLayout
from launch.families.arithmetic import ModelShape
from launch.families.named_configs import load_config
from launch.families.sparse_decoder import SparseDecoder
from launch.plan import shards, states
from launch.plan.job import Job, Lora
from launch.plan.step import Place, replay
from tests.distributed.cells import PRETRAINING, Cell
from tests.distributed.layouts import TP2, Layout
from tests.distributed.parity import beyond_tolerance

LONG, NIGHTLY = pytest.mark.long, pytest.mark.nightly


@pytest.mark.parametrize(
    ("name", "active", "layers"),
    [
        *[("mixtral-8x7b-v0.1", 12.88, 32), ("qwen1.5-moe-a2.7b", 2.69, 24), ("qwen2-57b-a14b", 14.25, 28)],
        *[("qwen3-30b-a3b", 3.35, 48)],
    ],
)
def test_a_token_is_multiplied_by_the_experts_that_it_is_sent_to(name, active, layers):
    """Billions of parameters that a token meets, by the models' cards: 12.9, 2.7, 14 and 3.3."""
    config = load_config(name)
    embedding = config["vocab_size"] * config["hidden_size"]
    found = ModelShape.from_config(config).matmul_parameters + embedding
    assert found / 1e9 == pytest.approx(active, abs=0.01)


SIZES = {
    "num_experts": 10,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 256,
    "num_hidden_layers": 2,
    "vocab_size": 64,
}
ADAPTER = Lora(4, ("q_proj", "up_proj", "down_proj"), 0.1)


# Each with the size of stage 2's buffers at which some experts have a place in them, some have none.
@pytest.mark.parametrize(
    ("how", "buffer"), [({}, 40_000), ({"recompute": "full"}, 40_000), ({"adapter": ADAPTER}, 2_000)]
)
@pytest.mark.parametrize("stage", [pytest.param("", marks=LONG), "stage2", pytest.param("stage3", marks=LONG)])
@pytest.mark.parametrize("length", [120, 121], ids=["equal rows", "more rows for some"])
def test_an_expert_that_stands_for_equal_ones_changes_no_planned_byte(how, buffer, stage, length, monkeypatch):
    """Of each part at the peak of each phase, on each rank; against a replay of all experts, one after the other."""
    monkeypatch.setattr(shards, "BUFFER_SIZE", buffer)
    monkeypatch.setattr(states, "SEGMENT_SIZE", 200)
    config = load_config("qwen2-moe-rehearsal") | SIZES
    ranks = 2 if stage else 1
    layout = PlannedLayout(1, ranks, 1, 1, stage)
    job = Job(config, layout, 1, 2, length, eval_batch=2, flash_attention=True, **how)
    places = [Place(0, shard) for shard in range(ranks)]
    found = [replay(job, place) for place in places]
    stood_for = []
    single = SparseDecoder._replayed

    def one_by_one(self, name, sizes):
        stood_for.append(max(single(self, name, sizes)[1]))
        return list(range(len(sizes))), [1] * len(sizes)

    monkeypatch.setattr(SparseDecoder, "_replayed", one_by_one)
    assert found == [replay(job, place) for place in places]
    assert max(stood_for) > 1


@LONG
def test_the_bias_of_ernies_choice_stays_in_float32(ranks):
    [found] = ranks(1, "tests.families.family_ranks:in_float32_under_o2", "ernie4_5_moe")
    assert found == ["qwen2_moe.layers.1.mlp.moe_statics.e_score_correction_bias"]


# What is rounded otherwise sends a token near a tie to another expert sooner or later (seen at the fifth step under
# tensor parallelism), and a loss has no such tolerance then.
FOUR = {"max_steps": 4}


@pytest.mark.parametrize(
    ("layout", "flags"),
    [
        pytest.param(TP2, {}, marks=LONG),
        pytest.param(Layout(stage=3, sharding=2), {}, marks=LONG),
        *(
            pytest.param(layout, flags, marks=NIGHTLY)
            for layout, flags in (
                (Layout(data=2), {}),
                (Layout(stage=1, sharding=2), {}),
                (Layout(stage=2, sharding=2), {}),
                (Layout(tensor=2, stage=2, sharding=2), {}),
                (Layout(accumulation=2), {"recompute": 1}),
                (Layout(stage=2, sharding=2), {"loss_chunk_tokens": 24}),
            )
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Layout) else " ".join(value),
)
@pytest.mark.parametrize(
    "model", ["qwen2-moe", *(pytest.param(one, marks=NIGHTLY) for one in ("mixtral", "qwen3-moe", "ernie4_5-moe"))]
)
def test_numbers_of_one_process(runs, model, layout, flags):
    assert beyond_tolerance(runs, Cell(PRETRAINING, layout, FOUR | flags, model)) == {}

"""Fine-tuning gives the single-process numbers in every layout, though samples, and so ranks and micro batches, differ
in how many tokens count."""

import pytest

from tests.distributed import parity
from tests.distributed.finetuning import STEPS, FinetuneRuns, LoraRuns, PrefixRuns
from tests.distributed.layouts import PP2, SINGLE, STAGE2, STAGE3, TP2, TP2_SP, Layout

STAGE1 = Layout(stage=1, sharding=2)
DP2 = Layout(data=2, accumulation=2)
TP4 = Layout(tensor=4)
TP2_PP2 = Layout(tensor=2, pipeline=2, accumulation=4)
LORA = ("--lora", "1", "--lora_rank", "4")
PREFIX = ("--prefix_tuning", "1", "--num_prefix_tokens", "6")
NF4 = ("--weight_quantize_algo", "nf4", "--weight_blocksize", "16")
SLOW = [pytest.mark.long]


@pytest.fixture(scope="module")
def root(ranks, tmp_path_factory):
    root = tmp_path_factory.mktemp("finetuning")
    ranks(1, "tests.training.finetune_material:make_material", str(root), 4, 0.02)
    return root


@pytest.fixture(scope="module")
def full(ranks, root) -> FinetuneRuns:
    return FinetuneRuns(ranks, root)


@pytest.fixture(scope="module")
def lora(ranks, root) -> LoraRuns:
    return LoraRuns(ranks, root, *LORA)


@pytest.fixture(scope="module")
def quantized(ranks, root) -> LoraRuns:
    return LoraRuns(ranks, root, *LORA, *NF4)


@pytest.fixture(scope="module")
def prefix(ranks, tmp_path_factory) -> PrefixRuns:
    """Of a model with grouped queries: 2 heads of keys and values for 4 of queries."""
    root = tmp_path_factory.mktemp("grouped")
    ranks(1, "tests.training.finetune_material:make_material", str(root), 2, 0.02)
    return PrefixRuns(ranks, root, *PREFIX)


def assert_equal_to_one_process(runs, layout, *argv):
    expected, found = runs.adamw(SINGLE), runs.adamw(layout, *argv)
    assert len(expected.column("loss")) == len(found.column("loss")) == STEPS
    for key in ("eval_tokens", "eval_accuracy"):
        assert found.summary["evaluation"][key] == expected.summary["evaluation"][key] > 0
    assert list(found.column("consumed_tokens")) == list(expected.column("consumed_tokens"))
    assert parity.beyond_tolerance(runs, layout, *argv) == {}


def layouts(*wanted, slow=()):
    return pytest.mark.parametrize(
        "layout",
        [pytest.param(one, id=one.name) for one in wanted]
        + [pytest.param(one, id=one.name, marks=SLOW) for one in slow],
    )


@layouts(PP2, slow=[TP4, TP2, STAGE2, TP2_PP2, STAGE1, STAGE3, DP2, TP2_SP])
def test_full_fine_tuning(full, layout):
    assert_equal_to_one_process(full, layout)


@layouts(TP2, STAGE2, slow=[STAGE1, PP2, TP2_PP2, STAGE3, DP2, TP2_SP])
def test_lora(lora, layout):
    assert_equal_to_one_process(lora, layout)


@layouts(TP2, slow=[STAGE1, STAGE2, STAGE3, DP2, TP2_SP])
def test_prefix_tuning(prefix, layout):
    assert_equal_to_one_process(prefix, layout)


@layouts(slow=[TP2, STAGE2, PP2])
def test_lora_on_a_quantized_base(quantized, layout):
    assert_equal_to_one_process(quantized, layout)

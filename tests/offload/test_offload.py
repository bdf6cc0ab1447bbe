"""CPU offload beside the same run without: losses to the bit, device memory by what went to the host."""

import pytest

from tests.distributed.layouts import Layout
from tests.runs import STEPS, VOCABULARY, Run

ADAMW_MOMENTS = 8  # bytes a number
LARGEST = 4 * VOCABULARY * 64  # bytes of the model's largest tensor


@pytest.fixture(scope="module")
def trained(runs):
    """trained(stage, offload, processes=2, **flags)"""

    def run(stage: int, offload: bool, processes: int = 2, **flags) -> Run:
        layout = Layout(stage=stage, sharding=2, data=processes // 2, accumulation=2)
        flags |= {"sharding": [f"stage{stage} offload"]} if offload else {}
        watch = ["tests.offload.offload_ranks:watch"]
        return runs("pretraining", layout=layout, model="deep", observers=watch, **flags)

    return run


GROUPS = {"processes": 4}  # two groups of sharding
LORA = {"lora": 1, "recompute": 1}
NARROW = {"optim": "adamw_16bit_moment"}
LONG, NIGHTLY = pytest.mark.long, pytest.mark.nightly
CASES = [
    pytest.param(2, {}, id="stage2"),
    pytest.param(3, {}, id="stage3", marks=LONG),
    pytest.param(3, LORA, id="stage3-lora", marks=NIGHTLY),
]
BESIDE = [
    pytest.param(2, GROUPS, id="dp2", marks=NIGHTLY),
    pytest.param(2, NARROW, id="moments-16", marks=NIGHTLY),
    pytest.param(3, NARROW, id="stage3-moments-16", marks=NIGHTLY),
]


@pytest.mark.parametrize(("stage", "flags"), [*CASES, *BESIDE])
def test_losses_are_those_without_offload_to_the_bit(trained, stage, flags):
    found, expected = (trained(stage, offload, **flags) for offload in (True, False))
    assert len(found.steps) == STEPS
    for column in ("loss", "grad_norm"):
        assert list(found.column(column)) == list(expected.column(column))


@pytest.mark.parametrize(("stage", "flags"), CASES)
def test_the_device_holds_less_by_what_went_to_the_host(trained, stage, flags):
    """Between two steps: moments and, under stage 3, slices, of which a layer that is gathered has a copy. Beta's
    powers stay; stage 2 keeps a place for its gradients where nothing is offloaded, offload gives back what is not in
    buffers, more than half of it here."""
    for offloaded, stock in zip(trained(stage, True, **flags).facts, trained(stage, False, **flags).facts, strict=True):
        moved, names = offloaded["host"], 16 * 64  # rounding of small tensors' names
        gradients = stock["between"] - offloaded["between"] - moved
        all_of_them = 4 * moved // ADAMW_MOMENTS
        assert all_of_them // 2 < gradients <= all_of_them if stage == 2 else 0 <= gradients <= names
        assert stock["peak"] - offloaded["peak"] >= moved - LARGEST // 2


@pytest.mark.long
def test_an_update_brings_back_two_parameters_at_most(trained):
    """The largest matrix of the model has 64 x 384 numbers, of which a rank of stage 3 has half: it, its gradient and
    its moments, 16 bytes a number, of the one that is updated and of the next."""
    for seen in trained(3, True).facts:
        assert 0 < seen["update"] - seen["between"] <= 2 * 4 * LARGEST // 2 + 4096


@pytest.mark.nightly
def test_stage_3_reads_a_model_through_a_card_that_has_room_for_its_largest_tensor(trained):
    """What stays when it is read: the tables of rotary positions, the same with and without."""
    for offloaded, stock in zip(trained(3, True, **LORA).facts, trained(3, False, **LORA).facts, strict=True):
        model = 4 * (2 * VOCABULARY * 64 + 4 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64)
        assert stock["loading"] - offloaded["loading"] == pytest.approx(model - LARGEST, abs=256)


def test_host_memory_is_held_until_its_copy_is_done(ranks):
    """As far as a pretended stream shows what a card would do. Also where others follow it: whoever gets it from the
    allocator may write at once."""
    [held] = ranks(1, "tests.offload.offload_ranks:host_memory_of_copies")
    assert held == [[True], [True, True], [True, False, True], [False, False, False], [False, False, False]]

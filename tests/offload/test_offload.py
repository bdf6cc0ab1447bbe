"""CPU offload beside the same run without: losses to the bit, device memory by what went to the host."""

import pytest

from launch.reporting.records import read_train_log

TRAIN = "tests.offload.offload_ranks:train"
STEPS = 4
ADAMW_MOMENTS = 8  # bytes a number
LARGEST = 4 * 256 * 64  # bytes of the model's largest tensor


@pytest.fixture(scope="module")
def runs(ranks, tmp_path_factory):
    """runs(stage, offload, *flags): (what each rank saw, [loss and gradient norm of each step]), done once."""
    root = tmp_path_factory.mktemp("offload")
    ranks(1, "tests.distributed.training_ranks:make_material", str(root), 4)
    done = {}

    def run(stage: str, offload: bool, *flags: str):
        key = (stage, offload, flags)
        if key not in done:
            output = root / str(len(done))
            words = {
                "model_name_or_path": root / "model",
                "input_dir": root / "corpus",
                "output_dir": output,
                "sharding": f"{stage} offload" if offload else stage,
                "split": "8,2,0",
                "max_seq_length": 32,
                "max_steps": STEPS,
                "logging_steps": 1,
                "learning_rate": 1e-3,
                "weight_decay": 0.1,
                "per_device_train_batch_size": 2,
                "do_train": 1,
                "device": "cpu",
                "cpu_fast": "off",
                "report_to": "none",
            }
            argv = [word for name, value in words.items() for word in (f"--{name}", str(value))]
            seen = ranks(4 if flags == GROUPS else 2, TRAIN, "run_pretrain", [*argv, *flags])
            log = [(one["loss"], one["grad_norm"]) for one in read_train_log(output) if "loss" in one]
            done[key] = seen, log
        return done[key]

    return run


ACCUMULATED = ("--gradient_accumulation_steps", "2")
GROUPS = ("--sharding_parallel_degree", "2")  # two of them, on 4 ranks
LORA = ("--lora", "1", "--recompute", "1", *ACCUMULATED)
NARROW = ("--optim", "adamw_16bit_moment")
LONG, NIGHTLY = pytest.mark.long, pytest.mark.nightly
CASES = [
    pytest.param("stage2", ACCUMULATED, id="stage2"),
    pytest.param("stage3", ACCUMULATED, id="stage3", marks=LONG),
    pytest.param("stage3", LORA, id="stage3-lora", marks=NIGHTLY),
]
BESIDE = [
    pytest.param("stage2", GROUPS, id="dp2", marks=NIGHTLY),
    pytest.param("stage2", NARROW, id="moments-16", marks=NIGHTLY),
    pytest.param("stage3", NARROW, id="stage3-moments-16", marks=NIGHTLY),
]


@pytest.mark.parametrize(("stage", "flags"), [*CASES, *BESIDE])
def test_losses_are_those_without_offload_to_the_bit(runs, stage, flags):
    log = runs(stage, True, *flags)[1]
    assert len(log) == STEPS and log == runs(stage, False, *flags)[1]


@pytest.mark.parametrize(("stage", "flags"), CASES)
def test_the_device_holds_less_by_what_went_to_the_host(runs, stage, flags):
    """Between two steps: moments and, under stage 3, slices, of which a layer that is gathered has a copy. Beta's
    powers stay; stage 2 keeps a place for its gradients where nothing is offloaded, offload gives back what is not in
    buffers, more than half of it here."""
    for offloaded, stock in zip(runs(stage, True, *flags)[0], runs(stage, False, *flags)[0], strict=True):
        moved, names = offloaded["host"], 16 * 64  # rounding of small tensors' names
        gradients = stock["between"] - offloaded["between"] - moved
        all_of_them = 4 * moved // ADAMW_MOMENTS
        assert all_of_them // 2 < gradients <= all_of_them if stage == "stage2" else 0 <= gradients <= names
        assert stock["peak"] - offloaded["peak"] >= moved - LARGEST // 2


@pytest.mark.long
def test_an_update_brings_back_two_parameters_at_most(runs):
    """The largest matrix of the model has 64 x 256 numbers, of which a rank of stage 3 has half: it, its gradient and
    its moments, 16 bytes a number, of the one that is updated and of the next."""
    for seen in runs("stage3", True, *ACCUMULATED)[0]:
        assert 0 < seen["update"] - seen["between"] <= 2 * 4 * LARGEST // 2 + 4096


@pytest.mark.nightly
def test_stage_3_reads_a_model_through_a_card_that_has_room_for_its_largest_tensor(runs):
    """What stays when it is read: the tables of rotary positions, the same with and without."""
    for offloaded, stock in zip(runs("stage3", True, *LORA)[0], runs("stage3", False, *LORA)[0], strict=True):
        model = 4 * (2 * 256 * 64 + 4 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64)
        assert stock["loading"] - offloaded["loading"] == pytest.approx(model - LARGEST, abs=256)


def test_host_memory_is_held_until_its_copy_is_done(ranks):
    """As far as a pretended stream shows what a card would do. Also where others follow it: whoever gets it from the
    allocator may write at once."""
    [held] = ranks(1, "tests.offload.offload_ranks:host_memory_of_copies")
    assert held == [[True], [True, True], [True, False, True], [False, False, False], [False, False, False]]

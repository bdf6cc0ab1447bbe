"""Offload in half precision with float32 master weights, and beside a loss scale: as without it, to the bit."""

import pytest

from launch.checkpoint.manifest import read_manifest
from launch.reporting.records import read_train_log

STEPS = 5
BF16 = ("--bf16", "1", "--fp16_opt_level", "O2")
# Arithmetic in float32, which so large a scale overflows at first; then it doubles every two steps.
SCALED = ("--fp16", "1", "--fp16_opt_level", "O1", "--scale_loss", str(2.0**127), "--loss_scale_window", "2")
RANKS = {BF16: "tests.checkpoint.half_ranks:pretrain", SCALED: "tests.distributed.training_ranks:pretrain"}
NUMBERS = ("loss", "grad_norm", "loss_scale", "skipped_steps")


@pytest.fixture(scope="module")
def material(ranks, tmp_path_factory):
    root = tmp_path_factory.mktemp("precision")
    ranks(1, "tests.distributed.training_ranks:make_material", str(root), 4)
    return root


@pytest.mark.parametrize(
    ("precision", "stage"),
    [
        pytest.param(BF16, "stage3", id="bf16-stage3", marks=pytest.mark.long),
        pytest.param(BF16, "stage2", id="bf16-stage2", marks=pytest.mark.nightly),
        pytest.param(SCALED, "stage2", id="loss scale-stage2", marks=pytest.mark.nightly),
        pytest.param(SCALED, "stage3", id="loss scale-stage3", marks=pytest.mark.nightly),
    ],
)
def test_is_the_run_without_offload_to_the_bit(ranks, material, tmp_path, precision, stage):
    numbers, files = [], []
    for sharding in (stage, f"{stage} offload"):
        output = tmp_path / sharding.replace(" ", "-")
        flags = ["--sharding", sharding, "--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "2"]
        flags += [*precision, "--max_steps", str(STEPS), "--save_steps", str(STEPS)]
        ranks(2, RANKS[precision], str(material), str(output), flags)
        numbers.append([[str(one.get(key)) for key in NUMBERS] for one in read_train_log(output) if "loss" in one])
        manifest = read_manifest(output / f"checkpoint-{STEPS}")
        files.append({name: file["sha256"] for name, file in manifest.files.items() if name.endswith("safetensors")})
    assert len(numbers[0]) == STEPS and numbers[1] == numbers[0]
    assert files[0] and files[1] == files[0]  # weights, master weights, moments
    if precision == SCALED:
        skipped = [row[-1] for row in numbers[0]]
        assert "1" in skipped and "0" in skipped

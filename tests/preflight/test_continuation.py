"""Going on from a checkpoint: whole, at the same samples a step."""

import json

import pytest

from launch.preflight.continuation import check_continuation
from launch.preflight.situation import Situation
from launch.processes.flags import parse_flags

FILES = ["model.safetensors", "trainer_state.json", "rng_state_2.pth", "optimizer.safetensors", "scheduler.pdparams"]


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint of two processes after 10 steps of 16 samples."""
    for name in FILES:
        (tmp_path / name).touch()
    (tmp_path / "trainer_state.json").write_text(json.dumps({"global_step": 10, "consumed_samples": 160}))
    return tmp_path


def told(checkpoint, flags: str = "", processes: int = 2) -> list[tuple[bool, str]]:
    words = f"--per_device_train_batch_size 8 {flags} --resume_from_checkpoint {checkpoint}".split()
    findings = check_continuation(Situation("run_pretrain", parse_flags(words), processes=processes))
    assert all(finding.subject == "resume" for finding in findings)
    return [(finding.ok, finding.found) for finding in findings]


def test_a_whole_checkpoint_of_the_same_batch(checkpoint):
    assert told(checkpoint) == [(True, "after step 10 and 160 samples")]


def test_a_checkpoint_without_its_last_file_is_half_written(checkpoint):
    (checkpoint / "scheduler.pdparams").unlink()
    [(ok, found)] = told(checkpoint)
    assert not ok and "half written: no scheduler.pdparams" in found
    assert told(checkpoint, "--ignore_load_lr_and_optim 1") == []


def test_another_batch_would_move_the_position_in_the_data(checkpoint):
    [(ok, found)] = told(checkpoint, "--gradient_accumulation_steps 2")
    assert not ok and found == (
        "32 samples a step, the 10 steps before took 16 each: data would be skipped or repeated"
    )


def test_another_division_of_the_same_batch_is_none(checkpoint):
    assert told(checkpoint, "--tensor_parallel_degree 2 --gradient_accumulation_steps 2")[0][0]


def test_random_numbers_of_another_number_of_processes(checkpoint):
    batch, random = told(checkpoint, "--per_device_train_batch_size 4", processes=4)
    assert batch[0] and random == (
        True,
        "random numbers (dropout) begin anew: no rng_state_4.pth in the checkpoint, which has rng_state_2.pth",
    )


def test_nothing_to_tell_without_a_checkpoint(tmp_path):
    assert check_continuation(Situation("run_pretrain", {})) == []
    assert told(tmp_path) == []  # the check of the model tells it

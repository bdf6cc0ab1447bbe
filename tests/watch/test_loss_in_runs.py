"""A run whose loss goes wrong ends before the next checkpoint, on all ranks, and says why."""

import pytest

from launch.reporting.records import read_train_log
from tests.distributed.cells import PRETRAINING
from tests.runs import as_words

FAULTY = "tests.watch.faulty_ranks:pretrain"
FROM_NOTHING = {"model_name_or_path": "llama-rehearsal", "continue_training": 0}
TWICE = FROM_NOTHING | {"max_steps": 12, "save_steps": 6, "do_eval": 0, "per_device_train_batch_size": 2}


@pytest.fixture
def said(ranks, runs, tmp_path):
    """said(fault, step, rank, ...): what each rank says of a run into tmp_path/out with a fault from a step on."""

    def run(fault: str, step: int, rank: int = -1, processes: int = 1, **flags) -> list[dict]:
        words = as_words(runs.words(PRETRAINING, output_dir=tmp_path / "out", **TWICE | {"logging_steps": 4} | flags))
        return ranks(processes, FAULTY, words, fault, step, rank)

    return run


def checkpoints(output) -> list[str]:
    return sorted(path.name for path in output.glob("checkpoint-*"))


@pytest.mark.parametrize(
    ("fault", "step", "stopped", "message", "changes"),
    [
        ("nan", 7, 8, "the loss is nan. Likely causes, the likeliest first: 1. half precision", {}),
        pytest.param(
            *(
                "collapse",
                7,
                12,
                "nobody predicts text like that. Likely causes, the likeliest first: 1. the inputs tell",
            ),
            {"logging_steps": 100, "per_device_train_batch_size": 1},  # in the first epoch
            marks=pytest.mark.long,
        ),
        pytest.param("spike", 9, 9, "the loss jumped to 9.", {"logging_steps": 1}, marks=pytest.mark.long),
        pytest.param(
            *("stuck", 7, 9, "the gradient is 0 in 3 records in a row", {"logging_steps": 1}), marks=pytest.mark.long
        ),
    ],
)
def test_a_fault_ends_the_run_before_the_next_checkpoint(said, tmp_path, fault, step, stopped, message, changes):
    output = tmp_path / "out"
    [one] = said(fault, step, **changes)
    assert one["exit_code"] == 2 and "Traceback" not in one["stderr"]
    assert f"error: stopped after step {stopped}: " in one["stderr"] and message in one["stderr"]
    assert f"the last checkpoint is {output}/checkpoint-6, from before" in one["stderr"]
    assert checkpoints(output) == ["checkpoint-6"]
    assert read_train_log(output)[-1]["global_step"] == stopped  # what was wrong is in the log


@pytest.mark.long
def test_a_fault_of_one_rank_ends_all_with_the_same_step(said, tmp_path):
    for one in said("nan", 7, 1, processes=2):
        assert one["exit_code"] == 2 and "stopped after step 8: the loss is nan" in one["stderr"]
    assert checkpoints(tmp_path / "out") == ["checkpoint-6"]


@pytest.mark.long
def test_a_first_loss_that_random_weights_cannot_have(said):
    [one] = said("spike", 1)
    assert "stopped after step 1: the first loss is 9.9" in one["stderr"] and "random weights" in one["stderr"]
    assert "there is no checkpoint yet" in one["stderr"]


@pytest.mark.long
def test_the_window_of_trained_weights_and_a_watch_that_is_off(runs, said, tmp_path):
    window = {"output_dir": tmp_path / "window", "max_steps": 2, "loss_first": "1.8-2.5"}
    told = runs.said(PRETRAINING, {"window": window})["window"]["stderr"]
    assert "expected 1.80 to 2.50 (--loss_first)" in told and "1. tokens of another" in told
    [one] = said("collapse", 7, loss_watch=0)
    assert one["exit_code"] == 0 and checkpoints(tmp_path / "out") == ["checkpoint-12", "checkpoint-6"]

"""A run whose loss goes wrong ends before the next checkpoint, on all ranks, and says why."""

import pytest

from launch.reporting.records import read_train_log
from tests.training.run_ranks import make_corpus
from tests.training.test_run_pretrain import argv

PRETRAIN = "tests.watch.faulty_ranks:pretrain"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("data") / "corpus"
    make_corpus(str(prefix), vocab_size=1024, largest_id=1023)
    return prefix


def flags(corpus, output, **changes) -> list[str]:
    steps = {"max_steps": 12, "logging_steps": 4, "save_steps": 6}
    usual = {"do_eval": 0, "per_device_train_batch_size": 2, "report_to": "none"}
    return argv(corpus, output, **(usual | steps | changes))


def checkpoints(output) -> list[str]:
    return sorted(path.name for path in output.glob("checkpoint-*"))


@pytest.mark.parametrize(
    ("fault", "step", "stopped", "message", "changes"),
    [
        ("nan", 7, 8, "the loss is nan. Likely causes, the likeliest first: 1. half precision", {}),
        ("collapse", 7, 12, "nobody predicts text like that. Likely causes, the likeliest first: 1. the inputs tell",
         {"logging_steps": 100}),
        ("spike", 9, 9, "the loss jumped to 9.", {"logging_steps": 1, "per_device_train_batch_size": 4}),
        ("stuck", 7, 9, "the gradient is 0 in 3 records in a row", {"logging_steps": 1}),
    ],
)  # fmt: skip
def test_a_fault_ends_the_run_before_the_next_checkpoint(
    ranks, corpus, tmp_path, fault, step, stopped, message, changes
):
    output = tmp_path / "out"
    [said] = ranks(1, PRETRAIN, flags(corpus, output, **changes), fault, step, -1)
    assert said["exit_code"] == 2 and "Traceback" not in said["stderr"]
    assert f"error: stopped after step {stopped}: " in said["stderr"] and message in said["stderr"]
    assert f"the last checkpoint is {output}/checkpoint-6, from before" in said["stderr"]
    assert checkpoints(output) == ["checkpoint-6"]
    assert read_train_log(output)[-1]["global_step"] == stopped  # what was wrong is in the log


def test_a_fault_of_one_rank_ends_all_with_the_same_step(ranks, corpus, tmp_path):
    said = ranks(2, PRETRAIN, flags(corpus, tmp_path / "out"), "nan", 7, 1)
    for one in said:
        assert one["exit_code"] == 2 and "stopped after step 8: the loss is nan" in one["stderr"]
    assert checkpoints(tmp_path / "out") == ["checkpoint-6"]


def test_a_first_loss_that_random_weights_cannot_have(ranks, corpus, tmp_path):
    [said] = ranks(1, PRETRAIN, flags(corpus, tmp_path / "out"), "spike", 1, -1)
    assert "stopped after step 1: the first loss is 9.9" in said["stderr"] and "random weights" in said["stderr"]
    assert "there is no checkpoint yet" in said["stderr"]


def test_the_window_of_trained_weights(ranks, corpus, tmp_path):
    from tests.training.test_run_pretrain import PRETRAIN as WELL

    [said] = ranks(1, WELL, flags(corpus, tmp_path / "first", max_steps=6))
    assert said["exit_code"] == 0
    continued = {"model_name_or_path": tmp_path / "first", "continue_training": 1, "max_steps": 2}
    [said] = ranks(1, WELL, flags(corpus, tmp_path / "second", **continued, loss_first="1.8-2.5"))
    assert "expected 1.80 to 2.50 (--loss_first)" in said["stderr"] and "1. tokens of another" in said["stderr"]
    [said] = ranks(1, WELL, flags(corpus, tmp_path / "third", **continued))
    assert said["exit_code"] == 0, said["stderr"]


def test_the_watch_may_be_switched_off(ranks, corpus, tmp_path):
    [said] = ranks(1, PRETRAIN, flags(corpus, tmp_path / "out", loss_watch=0), "collapse", 7, -1)
    assert said["exit_code"] == 0 and checkpoints(tmp_path / "out") == ["checkpoint-12", "checkpoint-6"]

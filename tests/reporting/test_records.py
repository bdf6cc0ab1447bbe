"""train_log.jsonl survives kills, damage and second starts: nothing is lost, nothing is there twice."""

import json
import os
from enum import Enum

import pytest

from launch.errors import UserError
from launch.reporting import records
from launch.reporting.records import TRAIN_LOG, LogWriter, cut_log, past_losses, read_train_log


def train(step: int) -> dict:
    return {"global_step": step, "loss": 1 / step}


def evaluation(step: int) -> dict:
    return {"global_step": step, "eval_loss": 2 / step}


@pytest.fixture
def log(tmp_path):
    """The log of 20 steps with an evaluation behind every tenth."""
    lines = [one for step in range(1, 21) for one in (train(step), *([evaluation(step)] if step % 10 == 0 else []))]
    path = tmp_path / TRAIN_LOG
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_what_lies_behind_a_step_is_kept_under_another_name(log):
    before = log.read_bytes()
    cut_log(log.parent, 18)
    assert [one["global_step"] for one in read_train_log(log.parent)] == [*range(1, 11), *range(10, 19)]
    assert (log.parent / "train_log.1.jsonl").read_bytes() == before
    cut_log(log.parent, 18)
    assert sorted(path.name for path in log.parent.iterdir()) == ["train_log.1.jsonl", TRAIN_LOG]
    cut_log(log.parent, 0)
    assert sorted(path.name for path in log.parent.iterdir()) == ["train_log.1.jsonl", "train_log.2.jsonl"]


@pytest.mark.parametrize("replaced", [0, 1])
def test_a_kill_before_any_rename_loses_no_step(log, monkeypatch, replaced):
    before, stock = log.read_bytes(), os.replace

    def replace(source, target):
        if len(list(log.parent.glob("train_log.*.jsonl"))) == replaced:
            raise KeyboardInterrupt
        stock(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        cut_log(log.parent, 18)
    assert log.read_bytes() == before


@pytest.mark.parametrize(
    "line",
    [b'{"global_step": 19, "lo\xffss": 1}\n', b"[19]\n", b"19\n", b"null\n", b'{"global_step": "19"}\n', b"{}\n",
     b'{"global_step": 19, "loss": "1"}\n', b"[" * 100_000 + b"\n", b"\x00\n", b'{"global_step": 19}'],
)  # fmt: skip
def test_a_line_that_is_no_record_is_left_out_and_stops_nothing(log, line):
    good = log.read_bytes()
    log.write_bytes(good + line)
    assert len(read_train_log(log.parent)) == 22
    assert past_losses(log.parent, 20, 2) == [1 / 19, 1 / 20]
    cut_log(log.parent, 20)
    assert log.read_bytes() == good
    assert (log.parent / "train_log.1.jsonl").read_bytes() == good + line


def test_a_run_that_goes_on_repeats_no_line(log):
    before = log.read_text()
    writer = LogWriter(log.parent, continues=True)
    for record in (train(20), evaluation(20), train(21), evaluation(21)):
        writer.write(record)
    assert log.read_text() == before + "".join(json.dumps(one) + "\n" for one in (train(21), evaluation(21)))


def test_evaluations_of_other_data_are_all_written(log):
    before = log.read_text()
    LogWriter(log.parent, continues=False).write(evaluation(20))
    with pytest.raises(UserError, match="gone: removed in training, with its checkpoints"):
        LogWriter(log.parent / "gone", continues=False).write(evaluation(20))
    assert log.read_text() == before + json.dumps(evaluation(20)) + "\n"
    assert records.read_train_log(log.parent)[-2:] == [evaluation(20), evaluation(20)]


def test_an_enumeration_is_written_by_its_value():
    strategy = Enum("Strategy", {"STEPS": "steps"}).STEPS
    assert records.plain({"b": strategy, "a": [1], "_own": 1}) == {"a": "[1]", "b": "steps"}

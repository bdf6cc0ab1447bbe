"""How a shared module shows its checks: by hand on rank 0, not after a recipe has, before Paddle is imported."""

import sys

import numpy as np
import pytest

from data_tools.formats.tokens.indexed import IndexedWriter
from launch import entry, preflight
from launch.config.flag_values import parse_flags
from launch.entry import check, prepare_process
from launch.errors import UserError

FLAGS = "--model_name_or_path llama-tiny --continue_training 0 --input_dir corpus --output_dir out --device cpu"


@pytest.fixture(autouse=True)
def started_by_hand(monkeypatch, tmp_path):
    for variable in (preflight.SHOWN, "PADDLE_TRAINER_ID", "PADDLE_LOCAL_RANK", "PADDLE_TRAINERS_NUM"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(entry, "die_with_parent", lambda: None)
    monkeypatch.chdir(tmp_path)
    with IndexedWriter(tmp_path / "corpus", vocab_size=100) as corpus:
        corpus.add_document(np.arange(50))


def test_lines_are_numbered_and_told_on_rank_zero(capsys):
    check("run_pretrain", parse_flags(FLAGS.split()))
    out, err = capsys.readouterr()
    assert out.startswith("  1 ✓ python") and "✓ layout" in out and "1 process; 8 samples a step" in out
    assert err == "" and "✗" not in out


@pytest.mark.parametrize("variable", [("PADDLE_TRAINER_ID", "1"), (preflight.SHOWN, "1")])
def test_not_by_other_ranks_and_not_twice(capsys, monkeypatch, variable):
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    monkeypatch.setenv(*variable)
    check("run_pretrain", parse_flags(FLAGS.split()))
    assert capsys.readouterr().out == ""


def test_faults_are_all_told_before_paddle_is_imported(capsys):
    """Upstream's TrainingArguments start process groups when they are constructed: too late for a refusal."""
    faults = "--max_stepz 3 --sharding stage9 --optim adafactor --tensor_parallel_degree 2"
    with pytest.raises(UserError, match="run_pretrain cannot start: see the faults above"):
        prepare_process("run_pretrain", [*FLAGS.split(), *faults.split()])
    out, err = capsys.readouterr()
    marked = [line.split()[2] for line in err.splitlines() if "✗" in line]
    assert marked == ["--max_stepz", "--sharding", "--tensor_parallel_degree", "--optim"]
    assert err.count("fix: ") == 4 and "✓ python" in err and out == ""
    assert "paddle" not in sys.modules


def test_faults_are_told_once_a_node(capsys, monkeypatch):
    monkeypatch.setenv("PADDLE_LOCAL_RANK", "1")
    with pytest.raises(UserError):
        check("run_pretrain", parse_flags(f"{FLAGS} --max_stepz 3".split()))
    assert capsys.readouterr() == ("", "")

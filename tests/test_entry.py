"""How a method shows its checks: by hand on rank 0, not after a recipe has, before Paddle is imported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from data_tools.formats.tokens.indexed import IndexedWriter
from launch import entry
from launch.config.flag import switch
from launch.config.flag_values import parse_flags
from launch.config.layout import Layout
from launch.config.run_config import HANDED_OVER, Nodes, RunConfig
from launch.entry import check, prepare_process
from launch.errors import UserError
from tests.store import ROOT

FLAGS = "--model_name_or_path llama-tiny --continue_training 0 --input_dir corpus --output_dir out --device cpu"


def run_of(flags: str) -> RunConfig:
    return RunConfig.from_arguments("run_pretrain", flags.split())[0]


@pytest.fixture(autouse=True)
def started_by_hand(monkeypatch, tmp_path):
    for variable in (HANDED_OVER, "PADDLE_TRAINER_ID", "PADDLE_LOCAL_RANK", "PADDLE_TRAINERS_NUM"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(entry, "die_with_parent", lambda: None)
    monkeypatch.chdir(tmp_path)
    with IndexedWriter(tmp_path / "corpus", vocab_size=100) as corpus:
        corpus.add_document(np.arange(50))


def test_lines_are_numbered_and_told_on_rank_zero(capsys):
    check(run_of(FLAGS))
    out, err = capsys.readouterr()
    assert out.startswith("  1 ✓ python") and "✓ layout" in out and "1 process; 8 samples a step" in out
    assert err == "" and "✗" not in out


def test_not_by_other_ranks(capsys, monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    check(run_of(FLAGS))
    assert capsys.readouterr().out == ""


def test_what_a_recipe_hands_over_is_taken_and_not_checked_again(monkeypatch):
    """The run of another command line is not: a process may inherit the variable."""
    argv = FLAGS.split()
    nodes = Nodes(2, 1, "10.0.0.1:8090", "SLURM", ("a", "b"))
    stated = Layout(8, 1, 1, 1, "")
    run = RunConfig(
        "launch/run_pretrain.py", parse_flags(argv), ("0", "1"), 24, "4090", 2, nodes, "ib-hdr", stated, {"seed": ["7"]}
    )
    environment = {"PADDLE_TRAINERS_NUM": "2"}
    Path("other.json").write_text('{"script": "run_pretrain", "version": 3}')
    Path("cut.json").write_text("{")
    with run.hand_over(environment):
        assert RunConfig.of_rank("run_pretrain", argv, environment) == (run, [], True)
        for script, words, changed in (
            ("finetune_generation", argv, {}),
            ("run_pretrain", [*argv, "--seed", "8"], {}),
            ("run_pretrain", argv, {"PADDLE_TRAINERS_NUM": "4"}),
            ("run_pretrain", argv, {HANDED_OVER: "other.json"}),
            ("run_pretrain", argv, {HANDED_OVER: "cut.json"}),
            ("run_pretrain", argv, {HANDED_OVER: "none.json"}),
        ):
            other, _, checked = RunConfig.of_rank(script, words, environment | changed)
            processes = int((environment | changed)["PADDLE_TRAINERS_NUM"])
            assert (other, checked) == (RunConfig(script, parse_flags(words), processes=processes), False)

        def refuse(*_):
            raise AssertionError("checked again")

        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(entry, "check", refuse)
        monkeypatch.setattr(entry, "meet_ranks", lambda *_: ["met"])
        monkeypatch.setattr(entry, "start_paddle", lambda *_: ["started"])
        monkeypatch.setattr(entry, "compare_flags", lambda *_: None)
        assert prepare_process("run_pretrain", argv) == (run, ["met", "started"])
        with pytest.raises(AssertionError, match="checked again"):
            prepare_process("run_pretrain", [*argv, "--seed", "8"])


def test_a_run_of_any_length_is_handed_over_until_it_ends():
    """Linux takes 128 KiB a variable, and a path need not be UTF-8."""
    corpora, environment = [*(f"0.1 语料/{number}" for number in range(6000)), os.fsdecode(b"\xff")], {}
    with RunConfig("run_pretrain", {"input_dir": corpora}).hand_over(environment):
        assert RunConfig.read(environment[HANDED_OVER]).explicit["input_dir"] == corpora
    assert not Path(environment[HANDED_OVER]).exists()


@pytest.mark.parametrize(
    ("words", "chosen"), [("--cpu_fast off", "off"), ("--cpu_fast 0", "off"), ("", "auto"), ("--cpu_fast on", "on")]
)
def test_every_form_of_cpu_fast_reaches_the_settings_of_paddle(words, chosen, monkeypatch):
    seen = []
    monkeypatch.setattr(entry, "check", lambda run: None)
    monkeypatch.setattr(entry, "meet_ranks", lambda *_: [])
    monkeypatch.setattr(entry, "compare_flags", lambda *_: None)
    monkeypatch.setattr(entry, "start_paddle", lambda on_cpu, cpu_fast: seen.append(switch(cpu_fast)) or [])
    prepare_process("run_pretrain", [*FLAGS.split(), *words.split()])
    assert seen == [chosen]


def test_cards_have_their_flags_before_paddle_is_imported(monkeypatch):
    """A value in the environment stays, and a CPU gets none."""
    wanted = {"FLAGS_use_stride_compute_kernel": "0", "FLAGS_use_auto_growth_pinned_allocator": "1"}
    seen = []
    imported = lambda: seen.append({name: os.environ.get(name) for name in wanted})  # noqa: E731
    monkeypatch.setattr(entry, "import_paddle_quietly", imported)
    monkeypatch.setattr(entry, "correct", lambda: None)
    monkeypatch.setattr(os, "environ", {"FLAGS_use_stride_compute_kernel": "1"})
    entry.start_paddle(on_cpu=False)
    os.environ.clear()
    entry.start_paddle(on_cpu=False)
    assert seen == [wanted | {"FLAGS_use_stride_compute_kernel": "1"}, wanted]


TAKEN = """
from launch.entry import start_paddle
start_paddle(on_cpu=False)
import paddle
from launch.devices.paddle_flags import CARD_FLAGS
print({str(int(value)) == CARD_FLAGS[name] for name, value in paddle.get_flags(list(CARD_FLAGS)).items()})
"""


@pytest.mark.long
def test_paddle_takes_the_flags_of_cards():
    done = subprocess.run([sys.executable, "-c", TAKEN], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.stdout == "{True}\n", done.stdout + done.stderr


def test_a_file_of_arguments_is_read_and_told(monkeypatch):
    """In the language of the user; flags behind it win."""
    stated = {
        "model_name_or_path": "llama-tiny",
        "input_dir": "corpus",
        "output_dir": "out",
        "seed": 1,
        "do_predict": True,
    }
    Path("arguments.json").write_text(json.dumps(stated))
    monkeypatch.setenv("LAUNCH_LANG", "zh")
    monkeypatch.setattr(entry, "meet_ranks", lambda *_: [])
    monkeypatch.setattr(entry, "start_paddle", lambda *_: ["started"])
    monkeypatch.setattr(entry, "compare_flags", lambda *_: None)
    behind = ["--continue_training", "0", "--device", "cpu", "--seed", "2"]
    run, lines = prepare_process("run_pretrain", ["arguments.json", *behind])
    assert run.explicit["model_name_or_path"] == ["llama-tiny"] and run.explicit["seed"] == ["2"]
    assert lines[0] == "arguments.json：读到 5 个键，成为 4 个参数"
    assert lines[1].startswith("--do_predict 被忽略：训练以一次评估结束") and lines[2:] == ["started"]


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
        check(run_of(f"{FLAGS} --max_stepz 3"))
    assert capsys.readouterr() == ("", "")


def test_there_is_a_home_where_it_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    environment = {}
    entry._give_home(environment)
    assert environment.keys() == {"HOME", "PPNLP_HOME"} and all(os.listdir(one) == [] for one in environment.values())
    with pytest.raises(UserError, match="PPNLP_HOME=.*/file/x: cannot be written. Name a folder you may write to"):
        entry._give_home({"PPNLP_HOME": str(tmp_path / "file" / "x")})
    monkeypatch.setenv("HOME", str(tmp_path))
    entry._give_home(kept := {"PPNLP_HOME": str(tmp_path / "new")})
    assert kept == {"PPNLP_HOME": str(tmp_path / "new")} and not (tmp_path / "new").exists()

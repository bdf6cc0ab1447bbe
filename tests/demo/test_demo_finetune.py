"""`make demo-finetune`, shortened: its questions, its runs and its table."""

import json
import re

import pytest

from data_tools.stdlib_corpus import is_heldout, questions, write_questions
from launch.commands.demo_finetune import COMMON, RESULTS, TUNINGS, print_table
from launch.config.recipe_file import load_recipes
from launch.families.arithmetic import lora_parameters
from launch.families.named_configs import load_config
from tests.demo.demos import run_demo
from tests.store import ROOT


def test_questions_are_about_functions_with_their_docstrings_first_line():
    function = 'def f(a, *, b=1):\n    """Do it.\n\n    More."""\n'
    source = function + 'class C:\n    def g(self):\n        "Go."\ndef h(): pass\n'
    assert list(questions("m", source)) == [
        {"src": "What does m.f do?", "tgt": "Do it."},
        {"src": "How is m.f called?", "tgt": "def f(a, *, b=1)"},
        {"src": "What does m.C.g do?", "tgt": "Go."},
        {"src": "How is m.C.g called?", "tgt": "def g(self)"},
    ]


def test_no_module_is_asked_about_in_training_and_evaluation(tmp_path):
    write_questions(tmp_path, 1000, 100)
    rows = {name: [json.loads(line) for line in open(tmp_path / f"{name}.json")] for name in ("train", "dev")}
    assert (len(rows["train"]), len(rows["dev"])) == (1000, 100)
    for name, heldout in (("train", False), ("dev", True)):
        for row in rows[name]:
            place = re.search(r"(?:does|is) (\S+) (?:do|called)\?", row["src"])[1].split(".")
            modules = {".".join(place[:end]) for end in range(1, len(place))}
            modules |= {f"{one}.__init__" for one in modules}
            assert any(is_heldout(one) == heldout for one in modules), row


def test_the_recipe_on_the_demo_is_a_row_of_the_table():
    [flags] = [recipe.flags for recipe in load_recipes(ROOT) if recipe.target == "lora-tiny"]
    [method] = [one.flags for one in TUNINGS if one.name == "lora r8 all"]
    trained = method | {name: COMMON[name] for name in (*list(COMMON)[:7], "do_eval", "device")}
    assert {name: type(value)(flags[name][0]) for name, value in trained.items()} == trained


@pytest.mark.nightly
def test_the_table_of_a_short_run(runs, tmp_path):
    """Three methods, a few steps, on a small model with random weights."""
    model = runs.material / "wide"
    methods = ["lora r4 q,v", "prefix 16", "full"]
    places = ["--model", model, "--directory", tmp_path / "out"]
    result = run_demo("finetune", "--methods", *methods, *places, "--max_steps", 20)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    found = json.loads((tmp_path / "out" / RESULTS).read_text())
    rows = {row["method"]: row for row in found["methods"]}
    config = load_config(str(model))
    assert rows["lora r4 q,v"]["trained"] == lora_parameters(config, ["q_proj", "v_proj"], 4)
    assert rows["lora r4 q,v"]["bytes"] < 4 * rows["lora r4 q,v"]["trained"] + 4000
    assert rows["full"]["trained"] > 50 * rows["lora r4 q,v"]["trained"]
    for method in methods:
        assert rows[method]["loss"] < found["before"]["eval_loss"], method
        assert re.search(rf"│ {method} +│ +{rows[method]['trained']:,} │", result.stdout)
    assert list(rows) == methods


def test_every_rank_is_compared_on_few_and_on_all_layers():
    names = [method.name for method in TUNINGS]
    assert [name for name in names if name.startswith("lora")] == [
        f"lora r{rank} {layers}" for layers in ("q,v", "all") for rank in (1, 4, 8, 64)
    ]


def test_the_table_fits_a_terminal(capsys, monkeypatch):
    """With numbers as long as the demo's, nothing cut or wrapped."""
    monkeypatch.setenv("COLUMNS", "80")
    figures = {"trained": 5_243_136, "bytes": 20_971_520, "loss": 2.1, "rougel": 34.5, "seconds": 1234.5}
    print_table({"eval_loss": 3.456, "eval_rougel": 12.3}, [{"method": one.name} | figures for one in TUNINGS])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for method in TUNINGS:
        assert sum(f"│ {method.name} " in line and "│ 5,243,136 │ 20.97 MB │" in line for line in lines) == 1

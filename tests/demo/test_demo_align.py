"""`make demo-align`: pairs by a rule that can be checked, and a shortened run."""

import json
import re

import pytest

from data_tools.stdlib_corpus import quote_pairs, write_preferences
from launch.commands import demo_align, demo_finetune
from launch.commands.demo_align import MADE, RESULTS, following
from launch.errors import UserError
from tests.demo.demos import run_demo

SOURCE = """\
a = 1
def f(x):
    g(x, 'one', 2)
    g("one", 'two')
    h(""\\"text""\\")
    h(f"a", b"c")
    h('it\\\\'s')
    'doc'
    h("")
"""


def test_a_line_with_one_string_in_both_styles_of_quotes():
    assert list(quote_pairs(SOURCE)) == [
        {"prompt": "a = 1\ndef f(x):\n    g(x, ", "chosen": '"one", 2)', "rejected": "'one', 2)"}
    ]


def test_the_rows_follow_the_rule_and_those_to_evaluate_on_are_others(tmp_path):
    write_preferences(tmp_path, 1000, 128)
    rows = {name: [json.loads(line) for line in open(tmp_path / f"{name}.json")] for name in ("train", "dev")}
    assert (len(rows["train"]), len(rows["dev"])) == (1000, 128)
    for row in rows["train"] + rows["dev"]:
        assert row["chosen"].replace('"', "'") == row["rejected"] and row["chosen"].startswith('"')
        assert "'" not in row["chosen"] and '"' not in row["rejected"]
    known = {row["prompt"] for row in rows["train"]}
    assert sum(row["prompt"] in known for row in rows["dev"]) < 8  # copies within the library


def test_what_follows_the_rule():
    assert following(['"a", 1)', " \"b')", "'it\"s')", 'f("a")', ""]) == 2


@pytest.mark.parametrize("demo", [demo_align, demo_finetune])
def test_without_the_demos_model_it_says_how_to_get_one(tmp_path, demo):
    with pytest.raises(UserError, match=re.escape(f"{tmp_path}: no model. Make one first: make demo")):
        demo.main(["--model", str(tmp_path)])


@pytest.mark.parametrize(
    ("model", "directory", "message"),
    [
        ("mine", "demo", "found files that are not of this demo"),
        ("old/model", "old", "found --model {root}/old/model in it"),
    ],
)
def test_it_replaces_no_model_that_it_has_not_made(tmp_path, monkeypatch, model, directory, message):
    """Nor the one that it starts from."""
    for name in ("demo/model", "mine", "old/model"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "old" / MADE).touch()
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(demo_align, "run", lambda command: pytest.fail("the demo began"))
    with pytest.raises(UserError, match=re.escape(message.format(root=tmp_path))):
        demo_align.main(["--model", str(tmp_path / model), "--directory", str(tmp_path / directory)])
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.nightly
def test_a_short_run_prefers_what_the_rule_says(runs, tmp_path):
    """On a small model with random weights."""
    flags = ["--max_steps", 12, "--learning_rate", "1e-2"]
    done = run_demo("align", "--model", runs.material / "wide", "--directory", tmp_path / "out", *flags)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads((tmp_path / "out" / RESULTS).read_text())
    before, after = found["before"]["accuracy"], found["after"]["accuracy"]
    assert before < 0.7 and after >= 0.8
    assert re.search(rf"likelier +│ +{before:.1%} │ +{after:.1%} │", done.stdout)
    assert len(found["prompts"]) == len(found["after"]["texts"]) == 64
    assert found["before"]["texts"] != found["after"]["texts"]

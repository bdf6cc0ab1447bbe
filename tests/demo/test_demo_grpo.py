"""`make demo-grpo`: its data, what it says of both models, and whole runs."""

import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from data_tools.text.encoders import load_encoder
from data_tools.tokenizer import save_tokenizer
from launch.commands import demo_grpo
from launch.commands.demo_grpo import HELD_OUT, LETTERS, MODEL, TOKENS, interval, main, train_letters, write_data
from launch.errors import UserError
from launch.families.named_configs import load_config
from tests.demo.demos import run_demo


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_held_out_prompts_are_others_and_no_letter_is_right_more_often(tmp_path):
    write_data(tmp_path)
    form, train, dev = (rows_of(tmp_path / f"{name}.json") for name in ("form/train", "prompts/train", "prompts/dev"))
    for row in train + dev:
        [letters] = re.findall(r"^Last: (.) (.) (.) (.) =$", row["prompt"])
        assert len(set(letters)) == 4 and row["answer"] == max(letters)
    held_out = {row["prompt"] for row in dev}
    assert len(held_out) == HELD_OUT and not held_out & {row["prompt"] for row in train}
    assert not held_out & {row["src"] for row in form}
    assert max(Counter(row["answer"] for row in train).values()) < 0.1 * len(train)
    right = sum(row["tgt"] == max(row["src"].split()[1:-1]) for row in form) / len(form)
    assert right < 0.09 and {row["tgt"] for row in form} == set(LETTERS)  # the form teaches no task


def test_a_letter_is_a_token(tmp_path):
    save_tokenizer(tmp_path, train_letters())
    encoder = load_encoder(tmp_path)
    assert encoder.vocab_size == TOKENS <= load_config(MODEL)["vocab_size"]
    [ids] = encoder.encode(["Last: a p =" + "".join(f" {letter}" for letter in LETTERS)])
    assert len(ids) == 4 + len(LETTERS) and len(set(ids)) == 2 + len(LETTERS)


def test_wilsons_interval():
    """Agresti & Coull (1998): 0 of 10 and 5 of 10."""
    assert interval(0.0, 10) == pytest.approx((0, 0.2775), abs=1e-4)
    assert interval(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


@pytest.mark.parametrize("after, said", [(0.95, ""), (0.5, "found 6% right before and 50% after")])
def test_both_are_printed_and_what_failed_is_an_error(tmp_path, monkeypatch, capsys, after, said):
    commands: list = []
    variables: list = []

    def run(command: list, given: dict | None = None) -> None:
        commands.append(command)
        variables.append(given)

    found = iter([0.06, after])
    monkeypatch.setattr(demo_grpo, "make_start", lambda folder: None)
    monkeypatch.setattr(demo_grpo, "run", run)
    monkeypatch.setattr(
        demo_grpo, "read_summary", lambda _: {"evaluation": {"eval_reward": next(found), "eval_answers": 300}}
    )
    records = [{"global_step": 1, "reward": 0.05, "loss": 0.1}, {"global_step": 2, "eval_reward": after}]
    monkeypatch.setattr(demo_grpo, "read_train_log", lambda _: records)
    command = ["--directory", str(tmp_path / "demo"), "--max_steps", "3"]
    if said:
        with pytest.raises(UserError, match=re.escape(said)):
            main(command)
    else:
        main(command)
    printed = capsys.readouterr().out
    assert re.search(r"before +│ +6\.0% │ +3\.8% - 9\.3% ", printed)
    assert re.search(rf"after +│ +{after:.1%} ", printed) and "sampled answers" in printed
    assert (tmp_path / "demo" / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "demo" / "results.json").read_text())["curve"] == [
        {"global_step": 1, "reward": 0.05},
        records[1],
    ]
    assert [Path(words[1]).name for words in commands] == ["finetune_generation.py", "grpo.sh", "grpo.sh"]
    assert commands[-1][-2:] == ["--max_steps", "3"] and commands[1][-2:] == ["--do_train", "0"]
    outputs = [Path(one["OUTPUT"]).name for one in variables if one]
    assert outputs == ["before", "model"] and variables[1]["DATA"] == str(tmp_path / "demo" / "prompts")


def run_and_read(folder: Path, *flags: str) -> tuple[subprocess.CompletedProcess, dict]:
    done = run_demo("grpo", "--directory", folder, *flags, time_limit=1700)
    assert (folder / "results.json").is_file(), done.stdout[-2000:] + done.stderr[-2000:]
    return done, json.loads((folder / "results.json").read_text())


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_rewards_alone_teach_the_task(tmp_path):
    done, results = run_and_read(tmp_path / "out")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert results["before"]["reward"] < 0.1 and results["after"]["reward"] > 0.9
    assert re.search(r"step +\d+/\d+ .* ETA ", done.stdout) and "make predict MODEL=" in done.stdout


@pytest.mark.nightly
def test_twice_the_same_to_the_bit(tmp_path):
    runs = [run_and_read(tmp_path / name, "--max_steps", "6", "--logging_steps", "1")[1] for name in ("one", "two")]
    assert runs[0] == runs[1] and len(runs[0]["curve"]) >= 6
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert weights[0] == weights[1]

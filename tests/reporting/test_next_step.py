"""The lines below a run that has ended well."""

import json
import os
import subprocess

import pytest

from launch.config.flag_values import parse_flags
from launch.config.run_config import RunConfig
from launch.preflight.report import Finding
from launch.reporting.announce import SHOWN, first_lines, next_step, not_shown

BASE = "--model_name_or_path models/base --do_train 1"


@pytest.fixture
def output(tmp_path):
    (tmp_path / "a run").mkdir()
    (tmp_path / "a run" / "run_summary.json").write_text("{}")
    os.utime(tmp_path / "a run" / "run_summary.json", (1000, 1000))
    return tmp_path / "a run"


def told(output, words: str, started: float = 999) -> list[str]:
    flags = parse_flags(words.split()) | {"output_dir": [str(output)]}
    return next_step(RunConfig("launch/finetune_generation.py", flags), started)


def test_a_model_and_an_adapter(output):
    assert told(output, BASE) == [
        f"The model: {output}",
        f"To ask it, a line each: make predict MODEL='{output}'",
    ]
    for words in ("--lora 1", "--prefix_tuning 1"):
        assert told(output, f"{BASE} {words}") == [
            f"The adapter: {output}",
            f"To ask it, a line each: make predict MODEL=models/base ADAPTER='{output}'",
        ]


def test_how_long_it_took_and_what_came_of_it(output):
    summary = {"seconds": 754.2, "global_step": 1600, "first_loss": 8.4, "last_loss": 4.25, "evaluation": None}
    (output / "run_summary.json").write_text(json.dumps(summary))
    assert told(output, BASE)[0] == "Done in 12m34s, 1,600 steps: loss 4.2500, 8.4000 at first"
    summary["evaluation"] = {"eval_loss": 4.125}
    (output / "run_summary.json").write_text(json.dumps(summary))
    assert told(output, BASE)[0].endswith("at first; evaluation loss 4.1250")


def test_nothing_where_there_is_no_result_of_this_run(output):
    """Nothing trained; stopped, beside the summary of an earlier run; stopped in the first run."""
    assert told(output, BASE.replace("1", "0")) == []
    assert told(output, BASE, started=1001) == []
    (output / "run_summary.json").unlink()
    assert told(output, BASE) == []


def test_what_the_checks_have_printed_is_not_printed_again(monkeypatch):
    lines = ["precision: float32", "chat template: llama", "a sample:", "    text", "    more", "steps: 2"]
    assert not_shown(lines) == lines
    told = {"precision": "float32", "sample": f"a sample:\n{'text ' * 50_000}", "data": "steps: 3"}
    findings = [Finding(True, subject, found) for subject, found in told.items()]
    monkeypatch.setenv(SHOWN, first_lines(findings))
    assert subprocess.run(["true"]).returncode == 0, "a variable this long would start no process"
    assert not_shown(lines) == ["chat template: llama", "steps: 2"]

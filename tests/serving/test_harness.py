"""lm-evaluation-harness asks the server for log-likelihoods as it asks any other: `local-completions`, unchanged."""

import json
import os
import subprocess
import sys

import pytest

from tests.serving.servers import ROOT, start_serve

OFFLINE = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "PYTHONPATH": str(ROOT)}


@pytest.mark.long
def test_it_gives_what_the_harness_has_of_the_exported_model(ranks, tmp_path):
    pytest.importorskip("lm_eval")
    pytest.importorskip("tenacity")
    ranks(1, "tests.training.finetune_material:make_material", str(tmp_path))
    ranks(1, "tests.evaluation.evaluate_ranks:write_tasks", str(tmp_path))
    lines = (tmp_path / "text.jsonl").read_text().splitlines()
    short = [json.dumps({"text": json.loads(line)["text"][:300]}) for line in lines]  # one window each, as both cut it
    (tmp_path / "text.jsonl").write_text("\n".join(short))
    exported = tmp_path / "exported"
    run("launch/commands/export.py", tmp_path / "model", exported)
    server = start_serve("--model_name_or_path", tmp_path / "model")
    harness = ["-m", "tests.evaluation.harness"]
    tasks = ("mmlu", "hellaswag", "winogrande", "text", "answers")
    what = [0, "bare", *tasks]
    run(*harness, exported, tmp_path, tmp_path / "theirs.json", *what)
    run(*harness, f"model@{server.url}/v1/completions={exported}", tmp_path, tmp_path / "ours.json", *what)
    assert server.stop() == 0
    ours, theirs = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("ours", "theirs"))
    texts = [[text.lstrip() for text in found["answers"]["others"]] for found in (ours, theirs)]
    assert texts[0] == texts[1]  # transformers drops the first space of an answer
    for task in tasks[:-1]:
        assert ours[task]["log_likelihoods"] == pytest.approx(theirs[task]["log_likelihoods"], rel=1e-6, abs=1e-4)
        assert ours[task]["others"] == theirs[task]["others"]  # whether they are the most likely ones
        assert ours[task]["measures"] == pytest.approx(theirs[task]["measures"], rel=1e-5)


def run(*words: object) -> None:
    done = subprocess.run([sys.executable, *map(str, words)], cwd=ROOT, capture_output=True, text=True, env=OFFLINE)
    assert done.returncode == 0, done.stderr

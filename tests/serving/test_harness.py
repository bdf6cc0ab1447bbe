"""lm-eval asks the server for log-likelihoods as it asks any other: `local-completions`, unchanged."""

import json
import subprocess
import sys

import pytest

from tests.serving.servers import ROOT, start_serve


@pytest.mark.nightly
def test_a_server_gives_lm_eval_what_an_evaluation_gives(ranks, tmp_path):
    pytest.importorskip("lm_eval")
    pytest.importorskip("tenacity")
    pytest.importorskip("transformers")
    ranks(1, "tests.training.finetune_material:make_material", str(tmp_path))
    ranks(1, "tests.evaluation.evaluate_ranks:write_tasks", str(tmp_path))
    text = tmp_path / "text" / "text_test.jsonl"
    short = [json.dumps({"text": json.loads(line)["text"][:300]}) for line in text.read_text().splitlines()]
    text.write_text("\n".join(short))  # one window each, as both cut it
    named = [f"{name}={tmp_path / name}" for name in ("mmlu", "hellaswag", "winogrande", "text", "qa")]
    flags = ["--model_name_or_path", str(tmp_path / "model"), "--output_file", str(tmp_path / "own.json")]
    flags += ["--device", "cpu", "--num_fewshot", "0", "--max_new_tokens", "12", "--tasks", *named]
    [said] = ranks(1, "tests.evaluation.evaluate_ranks:evaluate", flags)
    assert said["exit_code"] == 0, said["stderr"]
    run("launch/commands/export.py", tmp_path / "model", tmp_path / "exported")
    server = start_serve("--model_name_or_path", tmp_path / "model")
    out = tmp_path / "served.json"
    run("-m", "tests.serving.harness_client", server.url, tmp_path / "exported", out, *named)
    assert server.stop() == 0
    own, served = json.loads((tmp_path / "own.json").read_text()), json.loads(out.read_text())
    assert served["answers"].keys() == own["samples"].keys() and len(served["answers"]) == 5
    for task, answers in served["answers"].items():
        expected = [sample["resps"] for sample in own["samples"][task]]
        if task == "qa":  # transformers drops the first space of an answer
            assert [one[0][0].strip() for one in answers] == [one[0][0].strip() for one in expected]
            continue
        for theirs, ours in zip(answers, expected, strict=True):
            for their, our in zip(theirs, ours, strict=True):
                assert their[0] == pytest.approx(our[0], rel=1e-6, abs=1e-4)
        for measure, value in served["results"][task].items():
            if isinstance(value, float):
                assert own["results"][task][measure] == pytest.approx(value, rel=1e-5)


def run(*words: object) -> None:
    done = subprocess.run([sys.executable, *map(str, words)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

"""launch/commands/quantization_loss.py: the loss as it is, and what each format adds to it."""

import json
import re

import pytest

from tests.training.finetune_material import argv, write_first

RUN = "tests.runs_ranks:train"


@pytest.mark.long
def test_the_loss_of_each_format_beside_the_models_own(ranks, tmp_path):
    """Of a model that has learnt its dialogues: what is rounded more loses more, and eight bits next to nothing."""
    ranks(1, "tests.training.finetune_material:make_material", str(tmp_path))
    data = write_first(tmp_path / "pairs", tmp_path / "data", 16, shortest=True)
    flags = argv(tmp_path, tmp_path / "out", dataset_name_or_path=data, max_steps=30, learning_rate=3e-3, do_eval=1)
    [said] = ranks(1, "tests.training.finetune_ranks:finetune", flags, time_limit=300)
    assert said["exit_code"] == 0, said["stderr"]
    expected = json.loads((tmp_path / "out" / "run_summary.json").read_text())["evaluation"]["eval_loss"]
    asked = ["--model_name_or_path", str(tmp_path / "out"), "--dataset_name_or_path", str(data), "--device", "cpu"]
    [said] = ranks(1, RUN, "commands.quantization_loss", [*asked, "--src_length", "48", "--max_length", "96"], [])
    assert said["exit_code"] == 0, said["stderr"]
    found = {name: (float(loss), float(more)) for name, loss, more in
             re.findall(r"^(as it is|\S+) +loss (\S+)  (\S+)", said["stdout"], re.M)}  # fmt: skip
    assert list(found) == ["as it is", "weight_only_int8", "weight_only_int4", "llm.int8", "nf4", "fp4"]
    assert found["as it is"][0] == pytest.approx(expected, abs=2e-4)
    assert abs(found["weight_only_int8"][1]) < 0.02 and abs(found["llm.int8"][1]) < 0.02
    assert found["nf4"][1] < found["fp4"][1] and found["nf4"][1] < found["weight_only_int4"][1]
    percent = dict(re.findall(r"(\S+), [\d.]+ bits a weight, [\d.]+ GB; rounding is ([\d.]+) % of", said["stdout"]))
    assert 0.3 < float(percent["weight_only_int8"]) < 2 < 5 < float(percent["nf4"]) < float(percent["fp4"]) < 20

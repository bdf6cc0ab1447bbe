"""The two recipes of two cards in small: train with offload, be killed, go on, and end in what can be used."""

import json
from pathlib import Path

import pytest

from tests.distributed.cells import DROPOUT, FULL, PRETRAINING, Cell
from tests.distributed.layouts import STAGE2, STAGE3
from tests.kills.harness import Kill, hashes, records, train, was_killed

STEPS, SAVED = 6, 2
KILL = Kill(fault=f"before-rename@{2 * SAVED}:0")  # while its second checkpoint is being written


# The first is LoRA on raw text under stage 3, as pretrain-baichuan13b-lora; the second all parameters under stage 2, as
# finetune-chatglm2-6b-2gpu.
USUAL = {"max_steps": STEPS, "save_steps": SAVED, "do_eval": 0}
FAST = {"lora_rank": 8, "learning_rate": 0.05, "loss_watch": 0}
VICTIMS = {
    "adapted": Cell(
        PRETRAINING, STAGE3, DROPOUT | USUAL | FAST | {"sharding": ["stage3 offload"], "recompute": 1}, "wide"
    ),
    "tuned": Cell(FULL, STAGE2, USUAL | {"sharding": ["stage2 offload"]}),
}


@pytest.fixture(scope="module")
def killed(runs, tmp_path_factory) -> dict[str, Path]:
    """The outputs of runs that were killed and went on."""
    outputs = {name: tmp_path_factory.mktemp(name) / "out" for name in VICTIMS}
    for name, output in outputs.items():
        assert was_killed(train(runs, VICTIMS[name], output, KILL), output)
        assert train(runs, VICTIMS[name], output).exit_code == 0
    return outputs


@pytest.mark.long
@pytest.mark.parametrize("name", ["adapted", pytest.param("tuned", marks=pytest.mark.nightly)])
def test_a_killed_run_goes_on_as_if_nothing_had_been(runs, killed, name):
    whole = runs(**VICTIMS[name].arguments).output
    assert len(records(whole)) == STEPS
    assert records(killed[name]) == records(whole)
    assert hashes(killed[name], STEPS) == hashes(whole, STEPS)


@pytest.mark.long
def test_the_adapter_is_complete_small_and_answers_merged_as_beside_its_base(ranks, runs, killed, tmp_path):
    """Two halves for each of 7 linear layers in 2 layers, alike in both runs; of the base nothing is written."""
    output, whole = killed["adapted"], runs(**VICTIMS["adapted"].arguments).output
    index = json.loads((output / "peft_model.safetensors.index.json").read_text())
    assert len(index["weight_map"]) == 2 * 7 * 2
    [file], [other] = (list(run.glob("peft_model-*.safetensors")) for run in (output, whole))
    assert file.read_bytes() == other.read_bytes()
    numbers = 2 * 8 * (4 * (64 + 64) + 3 * (64 + 128))
    assert 4 * numbers < file.stat().st_size < 4 * numbers + 4096
    assert not list(output.glob("model*.safetensors"))

    model = runs.material / "wide"
    merge = ["--adapter_path", str(output), "--output_dir", str(tmp_path / "merged")]
    [[said]] = ranks(1, "tests.runs_ranks:train_all", "commands.merge", [merge])
    assert said["exit_code"] == 0, said["stderr"]
    asked = [[tmp_path / "merged"], [model, "--adapter_path", output], [model]]
    jobs = [
        [["--device", "cpu", "--max_new_tokens", "12", "--model_name_or_path", *map(str, one)], "A question?\n"]
        for one in asked
    ]
    [said] = ranks(1, "tests.prediction.predict_ranks:predict_all", jobs)
    assert [one["exit_code"] for one in said] == [0] * 3, said
    merged, beside, base = (one["stdout"] for one in said)
    assert merged == beside != base

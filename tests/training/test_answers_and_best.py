"""Evaluation by answers, and the best of a run beside its newest, in every layout."""

import json

import pytest
from safetensors.numpy import load_file

from launch.reporting.records import read_train_log
from tests.distributed.cells import DP2_TWICE, FULL, LORA
from tests.distributed.layouts import PP2, SINGLE, STAGE3, TP2
from tests.training.finetune_material import write_first

ANSWERED = {"eval_with_do_generation": 1, "max_steps": 2, "save_steps": 9}
long = pytest.mark.long


def predictions(run) -> list[dict]:
    return [json.loads(line) for line in (run.output / "predictions" / "step-2.jsonl").read_text().splitlines()]


@long
@pytest.mark.parametrize(
    ("layout", "eval_batch"),
    [
        (TP2, 5),
        *(pytest.param(*case, marks=pytest.mark.nightly) for case in ((SINGLE, 1), (DP2_TWICE, 5), (STAGE3, 5))),
    ],
    ids=str,
)
def test_every_layout_answers_alike(runs, layout, eval_batch):
    flags = ANSWERED | {"model": "wide", "dataset_name_or_path": runs.material / "short-pairs"}
    found = runs(FULL, layout=layout, per_device_eval_batch_size=eval_batch, **flags)
    alone = runs(FULL, **flags)
    assert predictions(found) == predictions(alone)
    for name in ("eval_bleu", "eval_rouge1", "eval_rouge2", "eval_rougel"):
        assert found.evaluation[name] == alone.evaluation[name]


@long
def test_the_best_of_a_run_that_gets_worse_is_kept_and_gives_its_loss_again(runs, tmp_path):
    """Seven dialogues are learnt by heart, which at last makes others less likely."""
    data = write_first(runs.material / "pairs", tmp_path / "data", 7, shortest=True)
    others = (runs.material / "pairs" / "train.json").read_text().splitlines(keepends=True)[-20:]
    (data / "dev.json").write_text("".join(others))
    flags = {"dataset_name_or_path": data, "model": "wide", "save_steps": 99}
    run = runs(FULL, max_steps=24, eval_steps=4, **flags | {"learning_rate": 5e-3, "weight_decay": 0})
    records = [record for record in read_train_log(run.output) if "eval_loss" in record]
    losses = {record["global_step"]: record["eval_loss"] for record in records}
    step = min(losses, key=losses.get)
    best = run.output / "best"
    record = json.loads((best / "best.json").read_text())
    assert (record["global_step"], record["eval_loss"]) == (step, losses[step])
    assert step < 24
    again = runs(FULL, **flags, model_name_or_path=best, do_train=0)
    assert again.evaluation["eval_loss"] == pytest.approx(losses[step], abs=2e-6)


@long
@pytest.mark.parametrize("layout", [PP2, pytest.param(TP2, marks=pytest.mark.nightly)], ids=lambda layout: layout.name)
def test_the_best_of_two_ranks_is_whole(ranks, runs, tmp_path, layout):
    """One process evaluates the model as they did. An adapter is small, and merged like any other: make merge proves
    its layers and logits."""
    best = runs(FULL, layout=layout, eval_steps=1).output / "best"
    kept = json.loads((best / "best.json").read_text())
    again = runs(FULL, model_name_or_path=best, do_train=0)
    assert again.evaluation["eval_loss"] == pytest.approx(kept["eval_loss"], abs=2e-6)
    output, model = runs(FULL, layout=layout, eval_steps=1, **LORA).output, runs.material / "model"
    files = sorted((output / "best").glob("*.safetensors"))
    assert len(files) == layout.pipeline
    assert sum(one.stat().st_size for one in files) < (model / "model.safetensors").stat().st_size / 2
    merge = ["--model_name_or_path", model, "--adapter_path", output / "best", "--output_dir", tmp_path / "merged"]
    [[said]] = ranks(1, "tests.runs_ranks:train_all", "commands.merge", [[*map(str, merge)]])
    assert said["exit_code"] == 0, said["stderr"]
    assert {name for file in files for name in load_file(file)} == {
        name for file in output.glob("*.safetensors") for name in load_file(file)
    }


def test_only_a_lower_loss_replaces_the_best(ranks, tmp_path):
    """A run that goes on knows its best, also after a kill between the two renames; a new one does not."""
    nan = float("nan")
    parts = [([[1, 3.0], [2, 2.0], [3, 2.0], [4, nan]], False), ([[3, 2.5]], True), None, ([[3, 2.5]], True)]
    keep = "tests.training.best_ranks:keep"
    [found] = ranks(1, keep, str(tmp_path), [*parts, ([[1, 2.5]], False)])
    assert found == [["best.json", "of-rank-0-at-2"]] * 3 + [["best.json", "of-rank-0-at-1"]]
    assert [one.name for one in tmp_path.iterdir()] == ["best"]
    [[both], _] = ranks(2, keep, str(tmp_path), [([[5, 1.5]], True)])
    assert both == ["best.json", "of-rank-0-at-5", "of-rank-1-at-5"]

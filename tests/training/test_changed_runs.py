"""A run that goes on with something changed: another reference, loss or evaluation data never goes unsaid."""

import json
import shutil

import pytest
from safetensors.numpy import load_file, save_file

from launch.config import resume_flags
from launch.config.flag_values import load_schema
from launch.config.recipe_file import SCRIPTS
from launch.reporting.records import read_train_log
from tests.distributed.cells import PAIRS

ANEW = "resume: other evaluation data or another loss: the best model is found anew"


def test_each_flag_is_refused_reported_or_free_where_it_differs():
    flags = {name for script in SCRIPTS for name in load_schema(script)}
    sets = (resume_flags.REFUSED, resume_flags.REPORTED, resume_flags.FREE)
    assert frozenset().union(*sets) == flags and sum(map(len, sets)) == len(flags)


@pytest.fixture(scope="module")
def changed(runs, tmp_path_factory) -> dict:
    """{change: (what was said, output)} of DPO of two steps that goes on with it."""
    root = tmp_path_factory.mktemp("changed")
    other = shutil.copytree(runs.material / "wide", root / "other")
    weights = load_file(other / "model.safetensors")
    weights["llama.norm.weight"] *= 2
    save_file(weights, other / "model.safetensors", metadata={"format": "np"})
    fewer = shutil.copytree(runs.material / "few-preferences", root / "fewer")
    lines = (fewer / "dev.json").read_text().splitlines(keepends=True)
    (fewer / "dev.json").write_text("".join(lines[:8]))
    flags = {"model": "wide", "learning_rate": 1e-2, "save_steps": 2, "evaluation_strategy": "steps", "eval_steps": 1}
    first = runs(PAIRS, **flags, max_steps=2).output
    changes = {
        "nothing": {},
        "reference": {"model_name_or_path": other},
        "accepted": {"model_name_or_path": other, "resume_changed": "model"},
        "loss": {"loss_type": "ipo", "beta": 0.5, "label_smoothing": 0.0},
        "dev": {"dataset_name_or_path": fewer},
    }
    outputs = {name: shutil.copytree(first, root / name, ignore=shutil.ignore_patterns("run.lock")) for name in changes}
    jobs = {name: flags | {"max_steps": 3, "output_dir": outputs[name]} | change for name, change in changes.items()}
    return {name: (said, outputs[name]) for name, said in runs.said(PAIRS, jobs).items()}


def resumed_lines(said: dict) -> list[str]:
    assert said["exit_code"] == 0, said["stderr"]
    return [line for line in said["stdout"].splitlines() if line.startswith("resume: ")]


@pytest.mark.long
def test_another_reference_is_refused_and_named(changed):
    said, _ = changed["reference"]
    assert said["exit_code"] == 2
    assert "the reference, which is the model before training, has other weights. Give the former" in said["stderr"]
    accepted = resumed_lines(changed["accepted"][0])
    assert "resume: the model has the reference, which is the model before training, has other weights" in accepted


@pytest.mark.long
def test_another_loss_is_reported_and_no_best_of_the_former_loss_is_kept(changed):
    assert resumed_lines(changed["nothing"][0]) == ["resume: --max_steps is 3, was 2"]
    said, output = changed["loss"]
    assert sorted(resumed_lines(said)) == [
        "resume: --beta is 0.5, was 0.1",
        "resume: --loss_type is ipo, was sigmoid",
        "resume: --max_steps is 3, was 2",
        ANEW,
    ]
    assert best_of(output)["global_step"] == 3


@pytest.mark.long
def test_other_evaluation_data_are_reported_and_the_best_is_found_anew(changed):
    said, output = changed["dev"]
    assert resumed_lines(said) == ["resume: --max_steps is 3, was 2", ANEW]
    last = [record for record in read_train_log(output) if "eval_loss" in record][-1]
    assert (best_of(output)["global_step"], best_of(output)["eval_loss"]) == (3, last["eval_loss"])


def best_of(output) -> dict:
    return json.loads((output / "best" / "best.json").read_text())

"""FIT and the run so far: what it was fitted to is kept beside its checkpoints."""

import json
import re
from pathlib import Path

import pytest

from launch.config.run_config import HANDED_OVER
from launch.errors import UserError
from launch.plan.hardware import CARDS
from launch.preflight.fitted import PROPOSED, RECORD, copy_record, fitted, propose_record, take_record
from tests.plan.test_fitting import recipe_run
from tests.preflight.test_continuation import check_continuation, make_checkpoint
from tests.recipes.machine import Machine

BATCH_4 = {"per_device_train_batch_size": ["4"], "gradient_accumulation_steps": ["4"]}
SMALL, LARGE = CARDS["4090"], CARDS["A100-80G"]


def requested(output, args: str = ""):
    return recipe_run("llama-7b/lora", f"--output_dir {output} {args}", FIT="off")


def batch(run) -> str:
    return f"{run.flags.per_device_train_batch_size} x {run.flags.gradient_accumulation_steps}"


def start(run, begins: bool = False):
    """As a recipe and then its first rank do. Returns the words that are recorded, None without a record."""
    output = Path(run.flags.output_dir)
    output.mkdir(exist_ok=True)
    propose_record(run, SMALL)
    take_record(output, begins)
    assert not (output / PROPOSED).exists()
    return json.loads((output / RECORD).read_text())["words"] if (output / RECORD).exists() else None


@pytest.fixture(autouse=True)
def started_by_a_recipe(monkeypatch):
    monkeypatch.setenv(HANDED_OVER, "{}")


def edit(output, words: dict) -> dict:
    """Change the words of the record; the record."""
    record = json.loads((output / RECORD).read_text())
    record["words"] = words
    (output / RECORD).write_text(json.dumps(record))
    return record


ONE_SAMPLE = {"per_device_train_batch_size": ["1"], "gradient_accumulation_steps": ["16"]}


@pytest.fixture
def begun(tmp_path):
    """The output of a run on a small card that has a checkpoint: (its folder, the run)."""
    run, lines = fitted(requested(tmp_path / "out"), SMALL)
    assert lines and run.fitted
    start(run, begins=True)
    make_checkpoint(tmp_path / "out", 5)
    return tmp_path / "out", run


def test_the_run_goes_on_with_the_flags_that_it_began_with(begun):
    """Also where the plan says something else by now."""
    output, first = begun
    record = json.loads((output / RECORD).read_text())
    assert record["words"] == first.fitted and record["card"] == "4090"
    edit(output, ONE_SAMPLE)
    run, [line] = fitted(requested(output), SMALL)
    assert run.fitted == ONE_SAMPLE and run.flags.per_device_train_batch_size == 1
    words = "--per_device_train_batch_size 1 --gradient_accumulation_steps 16"
    assert line == f"FIT as for the run so far, {output}/checkpoint-5: {words}"


def test_where_the_run_is_fitted_as_before_and_where_anew(begun, tmp_path):
    output, first = begun
    run, _ = fitted(requested(tmp_path / "other", f"--resume_from_checkpoint {output}/checkpoint-5"), SMALL)
    assert run.fitted == first.fitted, "a checkpoint that is named brings its flags"
    run, lines = fitted(requested(output), LARGE)
    assert run.fitted != first.fitted and all(line.startswith("FIT for A100-80G: ") for line in lines)
    run, _ = fitted(requested(output, "--overwrite_output_dir 1 --resume_from_checkpoint none"), LARGE)
    assert run.fitted == fitted(requested(output.parent / "new"), LARGE)[0].fitted
    run, _ = fitted(requested(output, "--per_device_train_batch_size 1"), SMALL)
    assert run.flags.per_device_train_batch_size == 1 and run.fitted == {}, "what the user gives now stays"
    edit(output, ONE_SAMPLE)
    for args in ("--ignore_load_lr_and_optim 1", "--resume_changed batch"):  # a run with other steps
        run, [line] = fitted(requested(output, args), SMALL)
        assert batch(run) == batch(first) and line.startswith("FIT for 4090: ")


def test_what_the_user_gives_once_becomes_the_record(begun):
    """And the rest of the record stays."""
    output, _ = begun
    edit(output, BATCH_4 | {"recompute": ["1"]})
    once, _ = fitted(requested(output, "--per_device_train_batch_size 2 --gradient_accumulation_steps 8"), SMALL)
    assert start(once) == {
        "recompute": ["1"],
        "per_device_train_batch_size": ["2"],
        "gradient_accumulation_steps": ["8"],
    }
    run, [line] = fitted(requested(output), SMALL)
    assert batch(run) == "2 x 8" and run.flags.recompute
    assert line.endswith(": --recompute 1 --per_device_train_batch_size 2 --gradient_accumulation_steps 8")


def test_a_run_that_is_cut_off_gets_the_flags_it_started_with(tmp_path):
    """By the functions of a recipe, also on node 1, which reads what node 0 has recorded."""
    variables = {"CARD": "4090", "GPUS": "1"}
    args = f"--output_dir {tmp_path / 'out'}"
    first = recipe_run("llama-7b/lora", args, **variables)
    assert batch(first) == "4 x 4" and start(first, begins=True) == first.fitted
    make_checkpoint(tmp_path / "out", 5)
    for _ in range(2):
        again = recipe_run("llama-7b/lora", args, **variables)
        assert again.explicit == first.explicit and start(again) == first.fitted


def test_the_samples_a_step_of_a_recipe_that_was_edited_are_its_own(begun):
    """The check of the checkpoint then refuses them; the rest is as recorded."""
    output, _ = begun
    edit(output, json.loads((output / RECORD).read_text())["words"] | {"per_device_eval_batch_size": ["1"]})
    edited = requested(output)
    edited = edited.changed({"gradient_accumulation_steps": ["4"]})
    run, _ = fitted(edited, SMALL)
    assert run.fitted == {"per_device_eval_batch_size": ["1"]} and run.samples_a_data_rank == 32
    assert [one.found for one in check_continuation(run) if not one.ok][:1] == [
        "32 samples a step, the 5 steps before took 16 each"
    ]


def test_a_run_that_begins_without_fit_leaves_no_record_and_goes_on_as_it_stands(begun):
    output, _ = begun
    assert start(requested(output)) is not None
    assert start(requested(output), begins=True) is None
    run = requested(output)
    assert fitted(run, SMALL) == (run, [])


def test_the_record_goes_with_the_checkpoints_beside_it(begun, monkeypatch):
    """What a start proposes takes its place when they are gone; not where the ranks were started by hand."""
    output, first = begun
    (output / "earlier").mkdir()
    propose_record(fitted(requested(output, "--overwrite_output_dir 1"), LARGE)[0], LARGE)
    assert json.loads((output / RECORD).read_text())["card"] == "4090"
    copy_record(output, output / "earlier")
    monkeypatch.delenv(HANDED_OVER)
    take_record(output, begins=False)
    assert json.loads((output / RECORD).read_text())["card"] == "4090"
    monkeypatch.setenv(HANDED_OVER, "{}")
    take_record(output, begins=True)
    assert json.loads((output / RECORD).read_text())["card"] == "A100-80G"
    make_checkpoint(output / "earlier", 5)
    run, _ = fitted(requested(output, f"--resume_from_checkpoint {output}/earlier/checkpoint-5"), SMALL)
    assert run.fitted == first.fitted


@pytest.mark.parametrize("text", ["{}", "[]", "{", '{"card": 1, "memory_bytes": 1, "processes": 1, "words": []}'])
def test_a_record_that_is_none(begun, text):
    output, _ = begun
    (output / RECORD).write_text(text)
    with pytest.raises(UserError, match="fit.json: not what FIT wrote"):
        fitted(requested(output), SMALL)


def test_a_recipe_fits_itself_to_the_cards_that_are_here(tmp_path):
    """On cards smaller than it is made for: printed, checked and started with the same flags, and recorded."""
    machine = Machine(tmp_path, cards=1, kind="3090")
    printed = machine.run("llama-7b/lora", ACTION="print", DATA="data")
    done = machine.run("llama-7b/lora", DATA="data", OUTPUT="out")
    assert "FIT for 3090: " in printed.stderr and "FIT for 3090: " in done.stdout
    assert "✗" not in done.stdout + done.stderr
    record = json.loads((machine.folder / "out" / PROPOSED).read_text())
    assert record["card"] == "3090"
    for name, words in record["words"].items():
        assert f"--{name} {' '.join(words)}" in re.split(r" \\\n +|\n", printed.stdout)


def test_only_on_and_off(tmp_path):
    done = Machine(tmp_path).run("llama-7b/lora", ACTION="print", FIT="no")
    assert done.returncode == 2 and done.stderr == "error: FIT: found 'no', allowed: on, off.\n"

"""FIT and the run so far: what it was fitted to is kept beside its checkpoints."""

import json
import re

import pytest

from launch.errors import UserError
from launch.plan.hardware import CARDS
from launch.preflight.fitted import RECORD, fitted, write_record
from tests.plan.test_fitting import recipe_run
from tests.preflight.test_continuation import make_checkpoint
from tests.recipes.machine import Machine

SMALL, LARGE = CARDS["4090"], CARDS["A100-80G"]


def requested(output, args: str = ""):
    return recipe_run("llama-7b/lora", f"--output_dir {output} {args}", FIT="off")


@pytest.fixture
def begun(tmp_path):
    """The output of a run on a small card that has a checkpoint: (its folder, the run)."""
    run, lines = fitted(requested(tmp_path / "out"), SMALL)
    assert lines and run.fitted
    write_record(run, SMALL)
    make_checkpoint(tmp_path / "out", 5)
    return tmp_path / "out", run


def test_the_run_goes_on_with_the_flags_that_it_began_with(begun):
    """Also where the plan says something else by now."""
    output, first = begun
    record = json.loads((output / RECORD).read_text())
    assert record["words"] == first.fitted and record["card"] == "4090"
    record["words"] = {"per_device_train_batch_size": ["1"], "gradient_accumulation_steps": ["16"]}
    (output / RECORD).write_text(json.dumps(record))
    run, [line] = fitted(requested(output), SMALL)
    assert run.fitted == record["words"] and run.flags.per_device_train_batch_size == 1
    words = "--per_device_train_batch_size 1 --gradient_accumulation_steps 16"
    assert line == f"FIT as for the run so far, {output}/checkpoint-5: {words}"


def test_a_checkpoint_that_is_named_brings_its_flags(begun, tmp_path):
    output, first = begun
    run, _ = fitted(requested(tmp_path / "other", f"--resume_from_checkpoint {output}/checkpoint-5"), SMALL)
    assert run.fitted == first.fitted


def test_on_other_cards_it_is_fitted_anew(begun):
    output, first = begun
    run, lines = fitted(requested(output), LARGE)
    assert run.fitted != first.fitted and all(line.startswith("FIT for A100-80G: ") for line in lines)


def test_a_run_that_starts_anew_is_fitted_anew(begun):
    output, _ = begun
    run, _ = fitted(requested(output, "--overwrite_output_dir 1 --resume_from_checkpoint none"), LARGE)
    assert run.fitted == fitted(requested(output.parent / "new"), LARGE)[0].fitted


def test_the_flags_that_the_user_gives_now_stay(begun):
    output, _ = begun
    run, _ = fitted(requested(output, "--per_device_train_batch_size 1"), SMALL)
    assert run.flags.per_device_train_batch_size == 1
    assert "per_device_train_batch_size" not in run.fitted


def test_a_run_that_was_not_fitted_goes_on_as_it_stands(begun):
    output, _ = begun
    (output / RECORD).unlink()
    run = requested(output)
    assert fitted(run, SMALL) == (run, [])


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
    record = json.loads((machine.folder / "out" / RECORD).read_text())
    assert record["card"] == "3090"
    for name, words in record["words"].items():
        assert f"--{name} {' '.join(words)}" in re.split(r" \\\n +|\n", printed.stdout)


def test_only_on_and_off(tmp_path):
    done = Machine(tmp_path).run("llama-7b/lora", ACTION="print", FIT="no")
    assert done.returncode == 2 and done.stderr == "error: FIT: found 'no', allowed: on, off.\n"

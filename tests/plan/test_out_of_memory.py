"""What an out-of-memory error shows of the plan."""

import re
from dataclasses import replace

import pytest

from launch.config.flag_values import parse_flags
from launch.config.run_config import RunConfig
from launch.plan import plan_report
from launch.plan.hardware import CARDS, GIB
from launch.plan.job import Job
from launch.plan.plan_report import this_run
from launch.preflight.proposals import changes_that_fit, lines_after_out_of_memory
from launch.watch import BACKWARD, _message
from tests.plan.test_fitting import recipe_run

ARGV = ["launch/run_pretrain.py", "--model_name_or_path", "llama-rehearsal", "--device", "cpu", "--sharding", "stage2"]
ON_A_CARD = ["launch/finetune_generation.py", "--model_name_or_path", "llama-7b", "--lora", "1", "--do_train", "1"]
ON_A_CARD += ["--fp16", "1", "--fp16_opt_level", "O2", "--dataset_name_or_path", "data", "--output_dir", "out"]
ON_A_CARD += ["--max_length", "512", "--per_device_train_batch_size", "2"]


def test_the_plan_of_the_run_that_died_is_in_the_message(monkeypatch):
    lines = this_run(ARGV, {"PADDLE_TRAINERS_NUM": "2"}).lines
    assert any(line.startswith("2 processes: sharding stage2 2") for line in lines)
    assert this_run(["launch/train.py", "pretraining", *ARGV[1:]], {"PADDLE_TRAINERS_NUM": "2"}).lines == lines
    assert any(line.startswith("parameters") for line in lines)
    assert this_run(["pytest"], {}) is None, "nothing to plan"
    assert this_run(["launch/run_pretrain.py", "--model_name_or_path", "llama-70b"], {}) is None
    monkeypatch.setattr("launch.watch.this_run", lambda: this_run(ARGV, {}))
    told = _message(MemoryError(), BACKWARD, ["--recompute 1"])
    assert told.index("--recompute 1") < told.index("\nThe plan of this run:\n") < told.index("\nThe error was:")


def test_the_cheapest_three_changes_save_a_tenth_of_a_plan_that_was_too_low(monkeypatch):
    monkeypatch.setattr(plan_report, "_card_here", lambda: CARDS["4090"])
    run = this_run(ON_A_CARD, {})
    assert run.plan.fits
    changes = [line for line in lines_after_out_of_memory(run) if re.match(r" +\d\.", line)]
    assert len(changes) == 3
    assert all(float(line.split()[1]) <= 0.9 * run.plan.peak_bytes / GIB + 0.05 for line in changes)


def test_the_changes_of_a_recipes_run_keep_the_users_own_flags(monkeypatch):
    monkeypatch.setattr(plan_report, "_card_here", lambda: CARDS["4090"])
    script, *words = [*ON_A_CARD, "--lora_rank", "4"]
    handed_over = {}
    with RunConfig(script, parse_flags(words), own={"lora_rank": ["4"]}).hand_over(handed_over):
        runs = [this_run([script, *words], environment) for environment in (handed_over, {})]
    for run, own in zip(runs, ("--lora_rank 4 ", ""), strict=True):
        arguments = [line for line in lines_after_out_of_memory(run) if "ARGS=" in line]
        assert len(arguments) == 3
        assert [line for line in arguments if f'ARGS="{own}' not in line or line.count("--lora_rank") > bool(own)] == []


@pytest.mark.parametrize("gpus", ["", pytest.param("2", marks=pytest.mark.long)])
def test_the_changes_of_a_fitted_run_are_those_of_the_plan_when_they_are_given(gpus):
    """FIT chooses nothing else beside them: its plan was too low. On twice the cards, too, with the same samples."""
    here = {"GPU_MEMORY_GB": "24", "GPUS": gpus}
    run = recipe_run("llama-7b/prefix", **here)
    assert {"recompute", "per_device_train_batch_size"} <= run.fitted.keys()
    for change in changes_that_fit(run, replace(CARDS["4090"], memory_bytes=19 * GIB), 4):
        again = recipe_run("llama-7b/prefix", change.arguments, **here)
        assert Job.from_run(again, CARDS["4090"]) == change.candidate.job, change.arguments

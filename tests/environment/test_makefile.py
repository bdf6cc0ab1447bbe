"""The public face: make help, and the three forms of each recipe."""

import shutil
import subprocess
from pathlib import Path

import pytest

from launch.recipe import Recipe

ROOT = Path(__file__).resolve().parents[2]
ECHO = 'echo "$ACTION ${0##*/} GPUS=$GPUS ARGS=$ARGS"'


@pytest.fixture
def house(tmp_path):
    """The Makefile with two recipes that only say how they were called, and a set-up that does nothing."""
    shutil.copy(ROOT / "Makefile", tmp_path / "Makefile")
    folder = tmp_path / "launch" / "environment"
    shutil.copytree(ROOT / "launch" / "environment", folder)
    (folder / "setup.py").write_text("")
    write_recipe(
        tmp_path / "recipes" / "llama-7b" / "pretrain.sh", "LLaMA-7B pretraining.", "GPUS=8 GPU_MEMORY_GB=80"
    )
    write_recipe(
        tmp_path / "recipes" / "llama-7b" / "lora.sh", "LoRA on one card.", "GPUS=1", "# Target  lora-1gpu"
    )
    write_recipe(tmp_path / "recipes" / "tiny" / "pretrain.sh", "A small " * 6 + "one.", "GPUS=0 PROCESSES=2")
    return tmp_path


def write_recipe(path, summary, needs, target="# Hardware  some"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n# {summary}\n{target}\n{ECHO}\nexit ${{CODE:-0}}\n{needs}\n")


def make(folder, *arguments):
    return subprocess.run(
        ["make", "--no-print-directory", *arguments], cwd=folder, capture_output=True, text=True
    )


def test_plain_make_lists_targets_and_recipes(house):
    lines = make(house).stdout.splitlines()
    targets = "setup setup-gpu lock doctor test test-long demo fit verify-gpu dashboard import clean"
    for target in targets.split():
        assert sum(line.startswith(f"  {target} ") for line in lines) == 1, target
    assert "  lora-1gpu                1 card   LoRA on one card" in lines
    assert "  pretrain-llama7b         8 cards  LLaMA-7B pretraining" in lines
    wrapped = lines.index("  pretrain-tiny            CPU      A small A small A small A small A small A")
    assert lines[wrapped + 1] == " " * 36 + "small one"
    assert make(house, "help").stdout.splitlines() == lines


def test_make_and_the_recipes_agree_on_their_names():
    """The name is worked out twice, in awk for make and in launch/recipe.py for its messages."""
    help_text = make(ROOT).stdout
    recipes = sorted((ROOT / "recipes").glob("*/*.sh"))
    assert recipes
    for path in recipes:
        target = Recipe(path, script="", flags={}, gpus=0, gpu_memory_gb=0, processes=1).target
        assert f"\n  {target} " in help_text


@pytest.mark.parametrize("target", ["help", "data"])
def test_help_is_no_wider_than_a_terminal(target):
    lines = make(ROOT, target).stdout.splitlines()
    assert len(lines) > 10 and [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize(("target", "first"), [("help", "Usage: make TARGET"), ("data", "  data-clean      Leave out")])
def test_a_reader_that_has_seen_enough(target, first):
    """`make help | head -1` is silent but for that line."""
    done = subprocess.run(f"make {target} | head -1", shell=True, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.startswith(first) and done.stdout.count("\n") == 1 and done.stderr == ""


@pytest.mark.parametrize(
    ("target", "output"),
    [
        ("pretrain-llama7b", "run pretrain.sh"),
        ("rehearse-pretrain-llama7b", "rehearse pretrain.sh"),
        ("print-pretrain-tiny", "print pretrain.sh"),
        ("lora-1gpu", "run lora.sh"),
        ("print-lora-1gpu", "print lora.sh"),
    ],
)
def test_the_forms_of_a_recipe(house, target, output):
    assert make(house, target).stdout == f"{output} GPUS= ARGS=\n"


def test_variables_reach_the_recipe(house):
    result = make(house, "print-pretrain-llama7b", "GPUS=4", "ARGS=--max_steps 10 --seed 1", "ACTION=run")
    assert result.stdout == "print pretrain.sh GPUS=4 ARGS=--max_steps 10 --seed 1\n"


def test_a_recipe_that_fails_fails_the_target(house):
    assert make(house, "pretrain-tiny", "CODE=3").returncode == 2


@pytest.mark.parametrize(
    ("target", "given", "missing"),
    [
        ("predict", (), "MODEL"),
        ("export", ("OUTPUT=out",), "MODEL"),
        ("import", (), "MODEL"),
        ("measures", (), "MODEL"),
        ("serve", ("ADAPTER=a=b",), "MODEL"),
        ("rounding", ("MODEL=m",), "DATA"),
        ("merge", ("ADAPTER=a",), "OUTPUT"),
        ("merge", ("OUTPUT=a",), "ADAPTER"),
        ("verify-gpu", (), "RECIPE"),
        ("ledger", (), "OUTPUT"),
    ],
)
def test_a_variable_that_is_missing_is_told_as_make_knows_it(house, target, given, missing):
    done = make(house, "-o", "setup", target, *given)
    assert done.returncode == 2
    first = done.stderr.splitlines()[0]
    assert first == f"error: {missing}: not given. Say make {target} {missing}=..., as make help has it."
    if target != "verify-gpu":  # whose ARGS are the recipe's
        assert "error:" not in make(house, "-o", "setup", "-n", target, "ARGS=--help").stdout


def test_unknown_targets_are_refused(house):
    result = make(house, "pretrain-llama8b")
    assert result.returncode == 2 and "pretrain-llama8b" in result.stderr


def test_clean_keeps_what_people_made(house):
    kept = ["build/demo/checkpoints/model", "checkpoints/model", "data/a.bin", ".venv/setup.json"]
    removed = [
        "build/lib/x",
        "build/setup.log",
        "some.egg-info/x",
        "launch/__pycache__/x.pyc",
        ".pytest_cache/x",
    ]
    for name in kept + removed:
        (house / name).parent.mkdir(parents=True, exist_ok=True)
        (house / name).touch()
    assert make(house, "clean").returncode == 0
    assert [name for name in kept + removed if (house / name).exists()] == kept

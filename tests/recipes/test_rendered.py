"""Every recipe: its printed command against its own lines, and that it is valid shell."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from launch.config.flag_values import flag_arguments, parse_flags
from launch.config.recipe_file import Recipe, recipe_paths
from launch.preflight.flag_check import check_flags
from launch.preflight.requested import requested_run
from launch.processes.command import LaunchCommand
from tests.recipes.machine import ROOT

RECIPES = recipe_paths(ROOT)


# What takes the place of launch/recipe.sh: `run` says its words, those of a method's file through that file.
SHELL = """\
set -eu
GPUS=0 GPU_MEMORY_GB=0 PROCESSES=1
run() {{
    case $1 in
        recipes/methods/*) file={root}/$1; shift; source "$file" "$@" ;;
        *) printf '%s\\0' "$GPUS" "$GPU_MEMORY_GB" "$PROCESSES" "$@" ;;
    esac
}}
"""


def script(recipe: Path) -> str:
    """Return the script that a recipe runs."""
    return Recipe.load(recipe).script


PREFERENCE_TUNING = [recipe for recipe in RECIPES if script(recipe).endswith(("run_dpo.py", "run_reward.py"))]


def name(recipe: Path) -> str:
    return f"{recipe.parent.name}/{recipe.stem}"


def stated_flags(recipe: Path) -> dict[str, list[str]]:
    """The flags as its lines have them."""
    return Recipe.load(recipe).flags


def printed_flags(words: list[str]) -> dict[str, list[str]]:
    script = next(number for number, word in enumerate(words) if word.endswith(".py"))
    return parse_flags(words[script + 1 + words[script].endswith("/train.py") :])


def test_command_has_each_line_of_the_recipe_and_nothing_else():
    for recipe in RECIPES:
        run, _ = requested_run(Recipe.load(recipe), {"FIT": "off"})
        assert printed_flags(LaunchCommand.of_run(run).arguments()) == stated_flags(recipe), name(recipe)
        assert [one for one in check_flags(script(recipe), stated_flags(recipe)) if not one.ok] == [], name(recipe)


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_a_shell_reads_the_recipe_as_its_reader_does(recipe, tmp_path):
    assert os.access(recipe, os.X_OK)
    copy = tmp_path / "recipes" / "any" / "copy.sh"
    copy.parent.mkdir(parents=True)
    shutil.copy(recipe, copy)
    (tmp_path / "launch").mkdir()
    (tmp_path / "launch" / "recipe.sh").write_text(SHELL.format(root=ROOT))
    said = subprocess.check_output(["bash", copy, "--seed", "two words"], text=True).split("\0")[:-1]
    if said[3] == "launch/train.py":  # the method behind it is what counts
        del said[3]
    read = Recipe.load(recipe)
    needs = [str(number) for number in (read.gpus, read.gpu_memory_gb, read.processes)]
    assert said[:4] == [*needs, read.script]
    assert parse_flags(said[4:]) == read.flags | {"seed": ["two words"]}
    assert read.method or said[4:] == [*flag_arguments(read.flags), "--seed", "two words"]

"""Every recipe: its printed command against its own lines, and that it is valid shell."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from launch.config.flag_values import flag_words, parse_flags
from launch.config.recipe_file import Recipe, recipe_paths
from launch.preflight.flags import check_flags
from launch.preflight.requested import requested_run
from launch.processes.command import LaunchCommand
from tests.recipes.machine import ROOT, Machine

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
    """The shared module that a recipe runs."""
    return Recipe.load(recipe).script


PRETRAINING = [recipe for recipe in RECIPES if script(recipe).endswith("run_pretrain.py")]
FINE_TUNING = [recipe for recipe in RECIPES if script(recipe).endswith("finetune_generation.py")]
PREFERENCE_TUNING = [recipe for recipe in RECIPES if script(recipe).endswith(("run_dpo.py", "run_reward.py"))]


def name(recipe: Path) -> str:
    return f"{recipe.parent.name}/{recipe.stem}"


def stated_flags(recipe: Path) -> dict[str, list[str]]:
    """The flags as its lines have them."""
    return Recipe.load(recipe).flags


def printed_flags(words: list[str]) -> dict[str, list[str]]:
    script = next(number for number, word in enumerate(words) if word.endswith(".py"))
    return parse_flags(words[script + 1 :])


def test_command_has_each_line_of_the_recipe_and_nothing_else():
    for recipe in RECIPES:
        run, _ = requested_run(Recipe.load(recipe), {"FIT": "off"})
        assert printed_flags(LaunchCommand.of_run(run).words()) == stated_flags(recipe), name(recipe)
        assert [one for one in check_flags(script(recipe), stated_flags(recipe)) if not one.ok] == [], name(recipe)


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_a_shell_reads_the_recipe_as_its_reader_does(recipe, tmp_path):
    """The file is a valid script, whose command has the same words; that of its method gets them as its arguments."""
    assert os.access(recipe, os.X_OK)
    copy = tmp_path / "recipes" / "any" / "copy.sh"
    copy.parent.mkdir(parents=True)
    shutil.copy(recipe, copy)
    (tmp_path / "launch").mkdir()
    (tmp_path / "launch" / "recipe.sh").write_text(SHELL.format(root=ROOT))
    said = subprocess.check_output(["bash", copy, "--seed", "two words"], text=True).split("\0")[:-1]
    read = Recipe.load(recipe)
    needs = [str(number) for number in (read.gpus, read.gpu_memory_gb, read.processes)]
    assert said[:4] == [*needs, read.script]
    assert parse_flags(said[4:]) == read.flags | {"seed": ["two words"]}
    assert read.method or said[4:] == [*flag_words(read.flags), "--seed", "two words"]


@pytest.mark.parametrize("recipe", FINE_TUNING, ids=name)
def test_fine_tuning_has_the_lengths_of_the_2_6_scripts_or_of_chats(recipe):
    """--src_length 128 --tgt_length 160, by today's flags; of AdvertiseGen 64 and 64; of the demo's questions. Those of
    today's models have the lengths of today's chats."""
    others = {
        "chatglm2-6b/full-2gpu": (64, 64),
        "tiny/lora": (64, 48),
        "qwen3-8b/lora": (2048, 1024),
        "qwen2.5-0.5b/finetune": (1536, 512),
        "qwen2.5-0.5b/finetune-cpu": (384, 128),
    }
    method = Recipe.load(recipe).method
    of_chats = method is not None and method.stem in ("lora", "finetune")
    source, target = others.get(name(recipe), (3072, 1024) if of_chats else (128, 160))
    flags = stated_flags(recipe)
    assert (flags["src_length"], flags["max_length"]) == ([str(source)], [str(source + target)])


def test_llama_7b_command_can_be_pasted(tmp_path):
    done = Machine(tmp_path).run("llama-7b/pretrain", ACTION="print")
    first, script, *flags = done.stdout.splitlines()
    assert re.fullmatch(
        r"\S*python -m paddle.distributed.launch --gpus 0,1,2,3,4,5,6,7 "
        r"--log_dir ./checkpoints/llama-7b-pretrain/log \\",
        first,
    )
    assert script == f"    {ROOT}/launch/run_pretrain.py \\"
    assert flags[0] == "    --model_name_or_path facebook/llama-7b \\"
    assert flags[-1] == "    --device gpu"
    assert done.stderr == ""

"""The public face: make help, and the four forms of each recipe."""

import os
import re
import shutil
import subprocess

import pytest

from tests.store import ROOT

# What takes the place of launch/recipe.sh.
ECHO = 'echo "$ACTION ${0##*/} GPUS=$GPUS ARGS=$ARGS${CONFIG:+ CONFIG=$CONFIG}"\nexit ${CODE:-0}\n'


@pytest.fixture
def house(tmp_path):
    """The Makefile with two recipes that only say how they were called, and a set-up that does nothing."""
    shutil.copy(ROOT / "Makefile", tmp_path / "Makefile")
    folder = tmp_path / "launch" / "environment"
    shutil.copytree(ROOT / "launch" / "environment", folder)
    (folder / "setup.py").write_text("")
    for room in ("config", "methods"):
        shutil.copytree(ROOT / "launch" / room, tmp_path / "launch" / room)
    for file in ("launch/__init__.py", "launch/errors.py", "data_tools/language.py", "data_tools/terminal.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    (tmp_path / "launch" / "recipe.sh").write_text(ECHO)
    write_recipe(tmp_path / "recipes" / "llama-7b" / "pretrain.sh", "LLaMA-7B pretraining.", "GPUS=8 GPU_MEMORY_GB=80")
    names = "# Target  lora-1gpu\n# Alias  lora-llama7b"
    write_recipe(tmp_path / "recipes" / "llama-7b" / "lora.sh", "LoRA on one card.", "GPUS=1", names)
    write_recipe(tmp_path / "recipes" / "tiny" / "pretrain.sh", "A small " * 6 + "one.", "GPUS=0 PROCESSES=2")
    return tmp_path


def write_recipe(path, summary, needs, names="# Hardware  some"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"#!/usr/bin/env bash\n# {summary}\n{names}\n"
        'source "$(dirname "$0")/../../launch/recipe.sh"\n'
        f'{needs}\n\nrun launch/run_pretrain.py --seed 7 \\\n    "$@"\n'
    )


def make(folder, *arguments, **environment):
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ | environment)


def test_plain_make_lists_targets_and_recipes_but_one_that_cannot_be_read(house):
    lines = make(house).stdout.splitlines()
    targets = "setup setup-gpu lock doctor test test-long demo fit certify dashboard import clean"
    for target in targets.split():
        assert sum(line.startswith(f"  {target} ") for line in lines) == 1, target
    assert "  lora-1gpu                 1 card   LoRA on one card" in lines
    assert not any("lora-llama7b" in line for line in lines), "another name of lora-1gpu"
    assert "  pretrain-llama7b          8 cards  LLaMA-7B pretraining" in lines
    wrapped = lines.index("  pretrain-tiny             CPU      A small A small A small A small A small A")
    assert lines[wrapped + 1] == " " * 37 + "small one"
    assert make(house, "help").stdout.splitlines() == lines
    path = house / "recipes" / "tiny" / "pretrain.sh"
    path.write_text(path.read_text() + "echo more\n")
    mine = house / "recipes" / "mine"
    write_recipe(mine / "train.sh", "Mine.", "GPUS=1", "# Target  my-name   # a note")
    write_recipe(mine / "two words.sh", "Mine.", "GPUS=1")
    shown = make(house).stdout
    assert "  pretrain-llama7b          8 cards  LLaMA-7B pretraining" in shown
    said = " ".join(shown[shown.index("  pretrain-tiny") :].split())
    assert said.startswith("pretrain-tiny ? recipes/tiny/pretrain.sh, line 9: found something behind `run`")
    assert make(house, "print-lora-1gpu").stdout == "print lora.sh GPUS= ARGS=\n"


@pytest.mark.parametrize(("target", "first"), [("help", "Usage: make TARGET"), ("data", "  data-clean      Leave out")])
def test_help_is_no_wider_than_a_terminal_and_a_reader_may_stop(target, first):
    lines = make(ROOT, target).stdout.splitlines()
    assert lines[0].startswith(first) and len(lines) > 10 and [line for line in lines if len(line) > 80] == []
    done = subprocess.run(f"make {target} | head -1", shell=True, cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{lines[0]}\n", "")


def test_the_forms_of_a_recipe_and_its_variables(house):
    forms = ("", "rehearse-", "print-", "plan-", "k8s-")
    done = make(house, *(f"{form}pretrain-llama7b" for form in forms))
    assert done.stdout == "".join(f"{form.rstrip('-') or 'run'} pretrain.sh GPUS= ARGS=\n" for form in forms)
    assert done.stderr == ""
    done = make(house, *(f"{form}lora-llama7b" for form in forms), "GPUS=2")
    assert done.stdout == "".join(f"{form.rstrip('-') or 'run'} lora.sh GPUS=2 ARGS=\n" for form in forms)
    told = [f"make {form}lora-llama7b is another name of make {form}lora-1gpu" for form in forms]
    assert done.stderr.splitlines() == told
    result = make(house, "print-pretrain-llama7b", "GPUS=4", "ARGS=--max_steps 10 --seed 1", "ACTION=run", "CODE=3")
    assert result.stdout == "print pretrain.sh GPUS=4 ARGS=--max_steps 10 --seed 1\n" and result.returncode == 2
    # Other tools have a variable of that name in the environment.
    done = make(house, "plan-pretrain-llama7b", CONFIG="Release")
    assert done.stdout == "plan pretrain.sh GPUS= ARGS=\n"
    told = "CONFIG of the environment is not read: make plan-pretrain-llama7b CONFIG=FILE takes a file of arguments\n"
    assert done.stderr == told
    for environment in ({}, {"CONFIG": "Release"}):
        done = make(house, "plan-pretrain-llama7b", "CONFIG=sft.json", **environment)
        assert (done.stdout, done.stderr) == ("plan pretrain.sh GPUS= ARGS= CONFIG=sft.json\n", "")


def test_verify_gpu_is_certify_now():
    words = ("verify-gpu", "RECIPE=lora-llama7b", "ARGS=--pretend")
    said, command = make(ROOT, "-n", "-o", "setup", *words).stdout.split("\n", 1)
    assert said == 'echo "make verify-gpu is another name of make certify${ONLY:+ ARGS=$ONLY}" >&2; \\'
    assert command.split("start.py ")[1].split() == ["launch/commands/certify.py", ":ONLY", ":ARGS..."]


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        (
            (),
            {"MODEL": ["predict", "export", "import", "measures", "serve"], "ADAPTER": ["merge"], "OUTPUT": ["ledger"]},
        ),
        (("MODEL=m", "ADAPTER=a"), {"DATA": ["rounding"], "OUTPUT": ["merge"]}),
    ],
)
def test_a_variable_that_is_missing_is_told_as_make_knows_it(house, given, missing):
    targets = [target for those in missing.values() for target in those]
    done = make(house, "-k", "-o", "setup", *targets, *given)
    told = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2 and told == [
        f"error: {name}: not given. Say make {target} {name}=..., as make help has it."
        for name, those in missing.items()
        for target in those
    ]
    assert "error:" not in make(house, "-o", "setup", "-n", *targets, "ARGS=--help").stdout


def test_without_python_or_by_an_unknown_target_every_target_says_so(house):
    meant = {
        "pretrain-llama8b": "make pretrain-llama7b or ",
        "plan-lora1gpu": "make plan-lora-1gpu or ",
        "dashbord": "make dashboard?",
        "data-tokenise": "make data-tokenize or ",
        "xyzzy": "",
    }
    done = make(house, "-k", *meant)
    told = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2
    for (mistyped, near), line in zip(meant.items(), told, strict=True):
        assert line.startswith(f"error: make {mistyped}: there is no such target.")
        assert line.endswith("`make help` lists all.")
        assert f"Did you mean {near}" in line if near else "Did" not in line
        offered = re.findall(r"make (\S+?)(?: or |\?)", line)
        assert len(offered) == len(set(offered)), line
    python = house / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    done = make(house, "-k", "help", "pretrain-llama7b", f"PYTHON={python}")
    assert done.returncode == 2 and done.stderr.count(f"error: PYTHON={python} is not a Python 3.10 to 3.12") == 2


def test_clean_keeps_what_people_made(house):
    kept = ["build/demo/checkpoints/model", "checkpoints/model", "data/a.bin", ".venv/setup.json"]
    removed = ["build/lib/x", "build/setup.log", "some.egg-info/x", "launch/__pycache__/x.pyc", ".pytest_cache/x"]
    for name in kept + removed:
        (house / name).parent.mkdir(parents=True, exist_ok=True)
        (house / name).touch()
    assert make(house, "clean").returncode == 0
    assert [name for name in kept + removed if (house / name).exists()] == kept

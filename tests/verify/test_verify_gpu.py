"""make verify-gpu: rehearsed on a CPU, refused where there are no cards."""

import json
import subprocess
import sys

import pytest

from launch.verify_gpu import _alone, find_recipe, processes_of, rehearsed_with, same_materials, script_of
from tests.recipes.machine import ROOT, Machine
from tests.recipes.rehearsing import recipes_by_target


def run(machine: Machine, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / "launch" / "verify_gpu.py", *arguments]
    environment = machine.environment(**variables)
    return subprocess.run(command, cwd=machine.folder, env=environment, capture_output=True, text=True, timeout=500)


@pytest.mark.parametrize("target", sorted(recipes_by_target()))
def test_every_recipe_can_be_named(target):
    recipe = find_recipe(target)
    assert (ROOT / script_of(recipe)).is_file()
    assert processes_of(recipe) >= 1


def test_an_unknown_recipe_is_refused(tmp_path):
    done = run(Machine(tmp_path), "pretrain-llama8b")
    assert done.returncode == 2
    assert done.stderr.startswith("error: RECIPE: found 'pretrain-llama8b', known: ")


def test_without_cards_nothing_is_compared(tmp_path):
    done = run(Machine(tmp_path), "pretrain-llama7b", "--output", str(tmp_path / "out"))
    assert done.returncode == 2
    assert "8 of 80 GB needed, here: none" in done.stderr
    assert "recipes/llama-7b/pretrain.sh ended with exit code 2; nothing was compared." in done.stderr
    assert not list((tmp_path / "out").rglob("*.json"))


ARGUMENTS = {"model_name_or_path": "llama-rehearsal", "tokenizer_name_or_path": "llama-rehearsal"}
PRETRAINING = ARGUMENTS | {"input_dir": "['data']", "max_seq_length": 128}
FINE_TUNING = ARGUMENTS | {"dataset_name_or_path": "['data']", "input_dir": None, "max_length": 128, "src_length": 64}


@pytest.mark.parametrize(
    ("target", "arguments"), [("pretrain-llama7b-4d", PRETRAINING), ("finetune-llama7b", FINE_TUNING)]
)
@pytest.mark.parametrize("degree", [1, 2])
def test_on_cards_the_tiny_model_passes_the_checks(target, arguments, degree, tmp_path):
    """Tensor parallel 1 and 2 on pretended cards: the ranks themselves cannot be started here."""
    recipe = find_recipe(target)
    machine = Machine(tmp_path, cards=2)
    variables = rehearsed_with(arguments) | _alone(recipe, degree, 1, same_materials(arguments))
    done = machine.run(str(recipe.relative_to(ROOT / "recipes").with_suffix("")), OUTPUT="out", **variables)
    said = done.stdout + done.stderr
    assert "✗" not in said and "error:" not in said, said
    assert f"{degree} process" in said and ("tensor parallel 2" in said) == (degree == 2)


@pytest.mark.long
def test_it_is_rehearsed_on_a_cpu(tmp_path):
    command = [sys.executable, ROOT / "launch" / "verify_gpu.py", "pretrain-tiny", "--rehearse", "--output", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "pretrain-tiny.json").read_text())
    assert report["rehearsed"] and report["versions"]["paddlenlp"] == "3.0.0b4"
    run = report["run"]
    assert run["steps"] == 20 and len(run["losses"]) == 20
    assert [row["rank"] for row in run["memory"]] == [0, 1]
    assert all(abs(row["error"]) < 0.10 for row in run["memory"])
    assert run["first_loss"]["ok"]
    assert run["speed"]["measured_tokens_per_second"] > 0
    assert report["tensor_parallel"]["ok"] and len(report["tensor_parallel"]["losses_of_2"]) == 3
    assert "tensor parallel 1 against 2: equal" in done.stdout

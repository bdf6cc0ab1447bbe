"""Recipes at full size: on pretended cards each passes its own checks with the made-up model and data."""

from dataclasses import replace

import pytest

from benchmarks import published
from launch.families.named_configs import load_config
from launch.plan.hardware import CARDS, card_of_memory
from launch.plan.job import Job
from tests.card.full_size import MEASURED, _accumulation, prepare, published_line, read_recipe, recipes_for_cards
from tests.recipes.machine import Machine
from tests.recipes.rehearsing import recipes_by_target

KINDS = {16: "V100-16G", 24: "4090", 32: "V100", 40: "A100-40G", 80: "A100"}  # of tests/devices/fake_nvml.py, by memory


def test_every_recipe_for_cards_is_a_check_and_the_printed_line_the_measured_job():
    small = ("qwen2.5-0.5b", "qwen3-0.6b", "ernie4.5-0.3b")
    of_a_cpu = {"pretrain-tiny", "lora-tiny", "grpo-tiny", *(f"finetune-{name}-cpu" for name in small)}
    assert sorted(recipes_for_cards()) == sorted(set(recipes_by_target()) - of_a_cpu)
    # What the page has for benchmarks/published.py plans as the run was planned.
    recipe = read_recipe("qlora-llama7b")
    recipe = replace(recipe, flags=recipe.flags | {name: [value] for name, value in MEASURED.items()})
    line = published_line(recipe, CARDS["4090"], 3214.04)
    row = eval(line.strip().rstrip(","), vars(published))
    assert (row.source, row.name, row.card, row.tokens_per_second) == ("D", "qlora-llama7b", "4090", 3214.0)
    assert row.job == Job.from_flags("launch/finetune_generation.py", recipe.flags, 1, CARDS["4090"])


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(target, marks=() if target in ("lora-1gpu", "qlora-qwen3-8b") else pytest.mark.nightly)
        for target in recipes_for_cards()
    ],
)
def test_a_recipe_starts_with_the_made_up_model_and_data(target, tmp_path):
    recipe = read_recipe(target)
    card = card_of_memory(recipe.gpu_memory_gb)
    machine = Machine(tmp_path, cards=recipe.gpus, kind=KINDS[recipe.gpu_memory_gb])
    variables = prepare(tmp_path, recipe, MEASURED | _accumulation(recipe.flags), card, card.memory_bytes)
    done = machine.run(str(recipe.path.relative_to(recipe.path.parents[1]).with_suffix("")), **variables)
    said = done.stdout + done.stderr
    faults = [line for line in said.splitlines() if "✗" in line]
    assert all("✗ host memory" in line for line in faults), said  # of the machine that runs this test
    assert faults or "AssertionError: Paddle was imported" in said, "its ranks were started"
    config = load_config(str(tmp_path / "model"))
    named = load_config(recipe.flags["model_name_or_path"][0])
    assert {name for name in config if config[name] != named.get(name)} <= {
        name for name in config if name.endswith("_token_id")
    }

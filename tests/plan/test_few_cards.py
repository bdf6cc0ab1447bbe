"""The recipes for those who own one card or two: they fit with margin, on the card and in host memory."""

from pathlib import Path

import pytest

from docs.tools.recipe_table import plan_of
from launch.plan.fitting import SPARE
from launch.plan.hardware import GIB

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
MARGIN = 0.92  # of a card


@pytest.mark.parametrize(
    ("recipe", "card", "ranks", "host_gib"),
    [
        ("baichuan-13b/lora-2gpu.sh", "4090", 2, 64),
        pytest.param("baichuan-13b/qlora-1gpu.sh", "4090", 1, 8, marks=pytest.mark.long),
        ("chatglm-6b/int8-lora-1gpu.sh", "4090", 1, 8),
        ("chatglm2-6b/full-2gpu.sh", "V100-32G", 2, 128),
    ],
)
def test_each_fits_its_hardware_with_margin(recipe, card, ranks, host_gib):
    plan = plan_of(RECIPES / recipe)
    assert plan["card"] == card and plan["fits"]
    assert plan["peak_bytes"] < MARGIN * plan["card_memory_bytes"]
    assert ranks * sum(plan["host_bytes"].values()) < MARGIN * host_gib * GIB


def test_the_recipe_in_8_bits_is_fitted_to_16_gb():
    plan = plan_of(RECIPES / "chatglm-6b" / "int8-lora-1gpu.sh", GPU_MEMORY_GB="16")
    assert plan["card"] == "V100-16G" and plan["peak_bytes"] <= (1 - SPARE) * plan["card_memory_bytes"]

"""README's table of recipes, made from the recipes' headers and the planner.

    python -m docs.tools.recipe_table README.md

replaces what stands between the two marks, a line each: <!-- recipes --> and <!-- end of recipes -->.
"""

import json
import sys
from pathlib import Path

from data_tools.cli import Parser
from docs.tools.pages import write_table
from launch import preflight
from launch.config.recipe_file import Recipe, load_recipes
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.guard import guarded
from launch.plan.hardware import GIB
from launch.plan.job import Job
from launch.plan.plan_report import JSON, mfu_of, speed_of
from launch.plan.time_plan import plan_time
from launch.preflight.requested import card_of_plan, known_model, requested_run
from launch.recipe import planned
from launch.reporting.markdown import markdown

ROOT = Path(__file__).resolve().parents[2]
NAME = "recipes"
MOST_HAVE = ("qwen3-8b", 1)  # a folder of recipes, and one card
HEAD = ["recipe", "what", "cards", "layout", "memory planned", "tokens/s planned", "MFU", "command"]


def table() -> str:
    """One row a recipe: what most people have first, then the others, those for the smallest hardware first."""
    rows = sorted(map(_row, load_recipes(ROOT)), key=lambda row: row["order"])
    return markdown(HEAD, (row["cells"] for row in rows))


def _row(recipe: Recipe) -> dict:
    run = run_of(recipe.path)
    card = card_of_plan(run)
    plan, time = json.loads(planned(run, JSON)), plan_time(Job.from_run(run, card), card).spread
    peak = plan["peak_bytes"] / GIB
    layout = plan["layout"].partition(": ")[2] or ("one card" if plan["card"] else "one process")
    if plan["card"]:
        cards = f"{recipe.gpus} x {recipe.gpu_memory_gb} GB"
        memory = f"{peak:.1f} of {plan['card_memory_bytes'] / GIB:.1f} GiB"
    else:
        cards, memory = "none", f"{peak:.1f} GiB a process"
    speed = [speed_of(time), mfu_of(time)] if plan["card"] else ["", ""]
    file = recipe.path.relative_to(ROOT / "recipes")
    cells = [f"[{file}](recipes/{file})", recipe.summary, cards, layout, memory, *speed, f"`make {recipe.target}`"]
    others = (recipe.path.parent.name, recipe.gpus) != MOST_HAVE
    return {"order": (others, recipe.gpus * recipe.gpu_memory_gb, recipe.gpus, recipe.target), "cells": cells}


def plan_of(path: Path, **variables: str) -> dict:
    """What `make plan-X` says of a recipe as it is shipped, or with these variables. Raises UserError where it cannot
    be planned."""
    return json.loads(planned(run_of(path, **variables), JSON))


def run_of(path: Path, **variables: str) -> RunConfig:
    """The run of `make X` with these variables, fitted to the hardware of the recipe or to what they name."""
    run, _ = requested_run(Recipe.load(path), variables)
    faults = [f"{one.subject}: {one.found}" for one in preflight.run_on_flags(run) if not one.ok]
    if faults:
        raise UserError(f"{path}: {'; '.join(faults)}")
    return known_model(run)


def main(argv: list[str]) -> None:
    write_table(Parser("python -m docs.tools.recipe_table", __doc__), argv, NAME, table)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))

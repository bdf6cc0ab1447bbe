"""The tables of recipes, made from the recipes' headers and the planner: all in docs/recipes.md, some in README.md.

    python -m docs.tools.recipe_table README.md docs/recipes.md

replaces what stands between two marks, a line each: <!-- recipes --> and <!-- end of recipes -->, or, for those of
BY_HARDWARE, <!-- recipes by hardware --> and <!-- end of recipes by hardware -->.
"""

import json
import sys
from pathlib import Path

from data_tools.cli import Parser
from docs.tools.pages import write_tables
from launch import preflight
from launch.config.recipe_file import Recipe, load_recipes
from launch.config.run_config import RunConfig
from launch.errors import UserError
from launch.guard import guarded
from launch.plan.hardware import GIB
from launch.plan.job import Job
from launch.plan.plan_report import JSON, mfu_of
from launch.plan.time_plan import TimePlan, plan_time
from launch.preflight.requested import card_of_plan, known_model, requested_run
from launch.recipe import planned
from launch.reporting.markdown import markdown

ROOT = Path(__file__).resolve().parents[2]
NAME, SHORT = "recipes", "recipes by hardware"
MOST_HAVE = ("qwen3-8b", 1)  # a folder of recipes, and one card
HEAD = ["command", "file", "what", "cards", "layout", "memory planned", "tokens/s planned", "range", "MFU"]
BY_HARDWARE = (
    "finetune-ernie4.5-0.3b-cpu",
    "finetune-qwen3-0.6b",
    "lora-qwen3-8b",
    "dpo-lora-qwen2.5-7b",
    "pretrain-baichuan13b-lora",
    "finetune-llama7b-pipeline",
    "finetune-qwen2.5-7b",
    "pretrain-qwen3-8b",
)


def table() -> str:
    """Return one row a recipe: what most people have first, then the others, those for the smallest hardware first."""
    rows = sorted(load_recipes(ROOT), key=_order)
    return markdown(HEAD, (list(cells.values()) for cells in map(_cells, rows)))


def short_table() -> str:
    """Return the rows of BY_HARDWARE, in its order, with the columns that choose a recipe."""
    recipes = {recipe.target: recipe for recipe in load_recipes(ROOT)}
    columns = ["cards", "what", "memory planned", "range", "command"]
    rows = [_cells(recipes[target]) for target in BY_HARDWARE]
    head = [column if column != "range" else "tokens/s planned" for column in columns]
    return markdown(head, ([cells[column] for column in columns] for cells in rows))


def _order(recipe: Recipe) -> tuple:
    others = (recipe.path.parent.name, recipe.gpus) != MOST_HAVE
    return others, recipe.gpus * recipe.gpu_memory_gb, recipe.gpus, recipe.target


def _cells(recipe: Recipe) -> dict[str, str]:
    run = run_of(recipe.path)
    card = card_of_plan(run)
    plan, time = json.loads(planned(run, JSON)), plan_time(Job.from_run(run, card), card).spread
    peak = plan["peak_bytes"] / GIB
    layout = plan["layout"].partition(": ")[2] or ("one card" if plan["card"] else "one process")
    cards, memory, speed = "none", f"{peak:.1f} GiB a process", ["", "", ""]
    if plan["card"]:
        cards = f"{recipe.gpus} x {recipe.gpu_memory_gb} GB"
        memory = f"{peak:.1f} of {plan['card_memory_bytes'] / GIB:.1f} GiB"
        speed = [*speeds(time), mfu_of(time)]
    file = f"`{recipe.path.relative_to(ROOT / 'recipes')}`"
    cells = [f"`make {recipe.target}`", file, recipe.summary, cards, layout, memory, *speed]
    return dict(zip(HEAD, cells, strict=True))


def speeds(time: TimePlan) -> tuple[str, str]:
    """Return tokens a second of all cards in three digits, and the range in two."""
    speed = time.tokens_per_second
    low, high = (f"{float(f'{share * speed:.1e}'):,.0f}" for share in time.shares)
    return f"{float(f'{speed:.2e}'):,.0f}", f"{low}–{high}"


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
    write_tables(Parser("python -m docs.tools.recipe_table", __doc__), argv, {NAME: table, SHORT: short_table})


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))

"""Each recipe's planned speed as one number, and the range in which public runs are: the table of docs/recipes.md.

    python -m docs.tools.speed_table docs/recipes.md

replaces what stands between the two marks, a line each: <!-- speeds --> and <!-- end of speeds -->.
"""

import sys

from data_tools.cli import Parser
from docs.tools.pages import ROOT, write_table
from docs.tools.recipe_table import run_of
from launch.config.recipe_file import load_recipes
from launch.guard import guarded
from launch.plan.job import Job
from launch.plan.time_plan import TimePlan, plan_time
from launch.preflight.requested import card_of_plan
from launch.reporting.markdown import markdown

NAME = "speeds"
HEAD = ["recipe", "cards", "tokens/s", "range"]


def table() -> str:
    """One row a recipe that needs cards, in the order of their names."""
    rows = []
    for recipe in sorted(load_recipes(ROOT), key=lambda recipe: recipe.target):
        run = run_of(recipe.path)
        if card := card_of_plan(run):
            time = plan_time(Job.from_run(run, card), card).spread
            rows.append([f"`make {recipe.target}`", f"{recipe.gpus} x {card.name}", *speeds(time)])
    return markdown(HEAD, rows)


def speeds(time: TimePlan) -> tuple[str, str]:
    """Return tokens a second of all cards in three digits, and the range in two."""
    speed = time.tokens_per_second
    low, high = (f"{float(f'{share * speed:.1e}'):,.0f}" for share in time.shares)
    return f"{float(f'{speed:.2e}'):,.0f}", f"{low}–{high}"


def main(argv: list[str]) -> None:
    write_table(Parser("python -m docs.tools.speed_table", __doc__), argv, NAME, table)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))

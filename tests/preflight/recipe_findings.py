"""A recipe's preflight in this process: its file's own lines, a user's wishes, a pretended machine.

findings = recipe_findings("llama-7b/pretrain", "--sharding stage3", GPUS="4")
"""

import shlex

from launch import preflight
from launch.preflight.report import Finding
from launch.preflight.requested import requested_run
from launch.recipe import parse_recipe
from tests.recipes.machine import ROOT


def recipe_findings(name: str, argv: str = "", **wishes: str) -> list[Finding]:
    """What `recipes/NAME.sh ARGV` with these variables would show before anything starts."""
    recipe, own = parse_recipe([str(ROOT / "recipes" / f"{name}.sh"), *shlex.split(argv)])
    return preflight.run(requested_run(recipe, wishes, own=own)[0])

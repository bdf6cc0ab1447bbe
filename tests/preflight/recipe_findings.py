"""A recipe's preflight in this process: its file's own lines, a user's wishes, a pretended machine.

findings = recipe_findings("llama-7b/pretrain", "--sharding stage3", GPUS="4")
"""

import re
import shlex

from launch import preflight
from launch.config.flag_values import flag_words
from launch.preflight.report import Finding
from launch.recipe import apply_wishes, parse_recipe, situation
from tests.recipes.machine import ROOT
from tests.recipes.test_rendered import stated_flags


def recipe_findings(name: str, argv: str = "", **wishes: str) -> list[Finding]:
    """What `recipes/NAME.sh ARGV` with these variables would show before anything starts."""
    path = ROOT / "recipes" / f"{name}.sh"
    text = path.read_text()
    need = dict(re.findall(r"\b(GPUS|GPU_MEMORY_GB|PROCESSES)=(\d+)", text))
    script = re.search(r"^run (\S+)", text, re.MULTILINE)[1]
    stated = [word for key, value in need.items() for word in (f"--{key.lower()}", value)]
    words = [*flag_words(stated_flags(path)), *shlex.split(argv)]
    recipe = parse_recipe(["--recipe", str(path), *stated, script, *words])
    return preflight.run(situation(recipe, apply_wishes(recipe, wishes)))

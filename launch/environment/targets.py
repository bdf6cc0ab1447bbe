"""The targets of make: names of recipes, `make help`, `make data`, and suggestions for an unknown target.

The Makefile starts this in its folder with any Python: it needs no packages.

    python launch/environment/targets.py recipes          name:file:target of each recipe and each alias
    python launch/environment/targets.py help
    python launch/environment/targets.py data TOOL ...
    python launch/environment/targets.py unknown TARGET TOOL ...
"""

import difflib
import os
import re
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not launch/environment

from launch.config import removed
from launch.config.recipe_file import Recipe, recipe_paths, target_of
from launch.errors import UserError

FORMS = ("", "rehearse-", "print-", "plan-", "k8s-")
USAGE = "Usage: make TARGET [VARIABLE=VALUE ...]"
VARIABLES_TITLE = "Variables of every recipe (docs/recipes.md has the table)"
VARIABLES = (
    ("  MODEL= DATA= OUTPUT=      ", "which model, data, output directory"),
    ("  GPUS=4 DEVICES=0,2,5,7    ", "how many cards, which ones"),
    ("  GPU_MEMORY_GB=40          ", "memory of a card"),
    ("  PROCESSES=4               ", "how many processes, where it runs on a CPU"),
    ("  NNODES=2 RANK=0 MASTER=10.0.0.1:8090   ", "several nodes (docs/multi-node.md)"),
    ("  NETWORK=ib-hdr            ", "what joins them, for a plan"),
    ("  CONFIG=sft_argument.json  ", "a file of PaddleNLP's llm/config/"),
    ('  ARGS="--max_steps 10"     ', "further flags; the last one given wins"),
)


def recipe_names() -> dict[str, tuple[Path, str]]:
    """Return {name: (file, target)} of every target and alias.

    An unreadable file keeps the target of its path, which then reports the fault. A path that make cannot handle has no
    target.
    """
    names = {}
    for path in recipe_paths(Path()):
        if not re.fullmatch(r"[\w./-]+", str(path)):
            print(f"{path}: left out: a recipe's path has letters, digits, `-`, `_` and `.` alone", file=sys.stderr)
            continue
        try:
            recipe = Recipe.load(path)
        except UserError:
            names[target_of(path)] = (path, target_of(path))
            continue
        names[recipe.target] = (path, recipe.target)
        if recipe.alias:
            names[recipe.alias] = (path, recipe.target)
    return names


def help_text() -> str:
    """Return the targets of the Makefile, the recipes among them."""
    makefile = Path("Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):.*?## (.*)", makefile, re.MULTILINE)
    lines = [_row("", USAGE), "", *(_row(f"  {name:<13} ", text) for name, text in targets)]
    recipes = [_recipe_line(path) for path in recipe_paths(Path())]
    if recipes:
        lines += [
            "",
            _row(
                "", "Recipes X (rehearse-X: tiny, on a CPU; plan-X: memory, time; print-X: command; k8s-X: Kubernetes)"
            ),
            *recipes,
        ]
    return "\n".join([*lines, "", _row("", VARIABLES_TITLE), *(_row(*row) for row in VARIABLES)])


def _recipe_line(path: Path) -> str:
    try:
        recipe = Recipe.load(path)
    except UserError as error:
        return _row(f"  {target_of(path):<25} {'?':<8} ", str(error))
    from data_tools.language import localized  # only here: every make runs this file
    from data_tools.terminal import columns

    cards = localized({0: "CPU", 1: "1 card"}.get(recipe.gpus, f"{recipe.gpus} cards"))
    return _row(f"  {recipe.target:<25} {cards}{' ' * (9 - columns(cards))}", recipe.summary)


def data_text(tools: list[str]) -> str:
    """Return each tool with the first line of its docstring."""
    rows = []
    for tool in tools:
        with open(f"data_tools/{tool}.py", encoding="utf-8") as file:
            rows.append(_row(f"  data-{tool:<11}", file.readline().strip().lstrip('r"')))
    return "\n".join(rows)


def _row(left: str, text: str) -> str:
    from data_tools.language import localized  # only here: every make runs this file
    from data_tools.terminal import columns, wrapped

    return wrapped(localized(text), left, " " * columns(left))


def unknown_target(target: str, tools: list[str]) -> str:
    """Return the message about an unknown target."""
    if target in removed.TARGETS:
        return f"error: {removed.answer(f'make {target}', removed.TARGETS[target])}"
    makefile = Path("Makefile").read_text(encoding="utf-8")
    own = re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE)
    names = list(recipe_names())
    known = [*own, *names, *(f"data-{tool}" for tool in tools), *(form + name for name in names for form in FORMS)]
    near = difflib.get_close_matches(target, dict.fromkeys(known), n=3, cutoff=0.6)
    meant = f" Did you mean {' or '.join(f'make {name}' for name in near)}?" if near else ""
    return f"error: make {target}: there is no such target.{meant} `make help` lists all."


def main(argv: list[str]) -> int:
    """Run the command."""
    action, *words = argv
    if action == "unknown":
        from data_tools.language import localized  # only here: every make runs this file

        print(localized(unknown_target(words[0], words[1:])), file=sys.stderr)
        return 2
    if action == "recipes":
        text = " ".join(f"{name}:{path}:{target}" for name, (path, target) in recipe_names().items())
    else:
        text = help_text() if action == "help" else data_text(words)
    try:
        print(text, flush=True)
    except BrokenPipeError:  # `make help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

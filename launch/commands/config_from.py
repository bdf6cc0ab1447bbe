"""Print the command that a file of PaddleNLP, PaddleFormers or ERNIEKit means here, for the launcher and for a recipe.

    make config-from ARGS=sft_argument.json
    python launch/commands/config_from.py sft_argument.json --gpus 4

Without --gpus it is for as many cards as the file's degrees need. Where they leave open over how many cards it shards,
it is for the 8 of a machine, of an adapter for 1. Lines with # are what the file's keys become.
"""

import argparse
import difflib
import shlex
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import Parser, cards
from data_tools.language import localized
from data_tools.terminal import wrapped
from launch import preflight
from launch.config.argument_files import OURS, kind_of, read_arguments
from launch.config.flag_values import Flags, FlagValues, flag_arguments
from launch.config.key_files import read_source
from launch.config.layout import degree, sharding_stage
from launch.config.recipe_file import Recipe, load_recipes
from launch.config.run_config import RunConfig
from launch.config.typed import typed
from launch.config.variables import apply_variables
from launch.errors import UserError
from launch.families.named_configs import load_config, named_size
from launch.families.registry import family_of_config
from launch.guard import guarded
from launch.methods.finetuning import FINETUNING
from launch.methods.registry import method_of
from launch.preflight.rules.model_limits import without_what_is_lacking
from launch.processes.command import LaunchCommand

ROOT = Path(__file__).resolve().parents[2]
MACHINE = 8  # cards


def main(argv: list[str]) -> None:
    """Run the command."""
    args = _parse(argv)
    script = method_name(args.file)
    flags, lines = read_arguments(args.file, script)
    run, lacking = able_run(script, flags, args.gpus or cards_of(script, flags))
    for line in [*lines, *lacking, *announced(run)]:
        print(wrapped(localized(line), "# ", "#   "))
    print(LaunchCommand.of_run(run).text())
    if (recipe := nearest_recipe(run)) and (added := added_flags(recipe, args.file, run)) is not None:
        told = localized(
            f"by a recipe, which checks the machine and fits to its cards, with these flags of its own: {added}"
        )
        command = f"make {recipe.target} CONFIG={typed(args.file)}"
        if run.processes != recipe.gpus:
            command += f" GPUS={run.processes}"
        print("", wrapped(told, "# ", "#   "), command, sep="\n")


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("python launch/commands/config_from.py", __doc__)
    parser.add_argument("--gpus", type=cards, help="number of cards, all in one machine")
    parser.add_argument("file", help="the file of arguments: JSON or YAML")
    return parser.parse_args(argv)


def method_name(file: str) -> str:
    """Return the name of the file's method. A file without a method here is refused when it is read."""
    found = kind_of(read_source(file))
    if found is None:
        keys = " or ".join(sorted(kind.keys)[0] for kind, _ in OURS)
        raise UserError(f"{file}: no key of it tells what is trained. Expected {keys}, or more of the file.")
    return (found[1] or FINETUNING).name


def cards_of(script: str, flags: Flags) -> int:
    """Return the number of cards that the degrees need.

    PaddleNLP's pages start full training on the 8 cards of a machine, adapters on 1.
    """
    needed = degree(flags, "tensor_parallel_degree") * degree(flags, "pipeline_parallel_degree")
    values = FlagValues(script, flags)
    if values.given("sharding_parallel_degree"):
        return needed * degree(flags, "sharding_parallel_degree")
    adapts = values.lora or values.prefix_tuning
    return max(needed, MACHINE) if sharding_stage(flags) and not adapts and MACHINE % needed == 0 else needed


def able_run(script: str, flags: Flags, gpus: int) -> tuple[RunConfig, list[str]]:
    """Return the run on `gpus` cards, without flags that its model's family lacks, and lines about them."""
    run = RunConfig(script, flags, tuple(map(str, range(gpus))), processes=gpus)
    able, lines = without_what_is_lacking(_of_known_size(run), of_file=True)
    run = run.with_explicit(able.explicit | {"model_name_or_path": flags.get("model_name_or_path", [""])})
    if "max_steps" not in flags and not run.method.reads_rows and (recipe := nearest_recipe(run)):
        steps = recipe.flags["max_steps"]
        run = run.changed({"max_steps": steps})
        lines.append(f"--max_steps {steps[0]} is that of {recipe.target}: pretraining runs for a number of steps")
    return run, lines


def _of_known_size(run: RunConfig) -> RunConfig:
    """Return the run, with the configuration of its model's sizes in place of a name at a hub."""
    return run.changed({"model_name_or_path": [named_size(run.flags.model_name_or_path or "")]})


def announced(run: RunConfig) -> list[str]:
    """Return lines about the layout and about flags without effect.

    Raises:
        UserError: With all flags that conflict.
    """
    findings = preflight.run_on_flags(run)
    faults = [f"{finding.subject}: {finding.found}; {finding.fix}" for finding in findings if not finding.ok]
    if faults:
        raise UserError("\n".join(faults))
    return [f"{finding.subject}: {finding.found}" for finding in findings if finding.subject != "flags"]


def nearest_recipe(run: RunConfig) -> Recipe | None:
    """Return the nearest recipe of the same method and adapter on cards; None without one.

    It has the nearest name in the model's family, if there is one, then most degrees of the run, as many cards, the
    largest cards.
    """
    method = _method(run.script, run.explicit)

    def likeness(recipe: Recipe) -> tuple:
        same = sum(theirs == ours for theirs, ours in zip(_layout(recipe.flags), _layout(run.explicit), strict=True))
        return _model_likeness(recipe.flags, run.explicit), same, recipe.gpus == run.processes, recipe.gpu_memory_gb

    found = (recipe for recipe in load_recipes(ROOT) if recipe.gpus and _method(recipe.script, recipe.flags) == method)
    return max(found, key=likeness, default=None)


def added_flags(recipe: Recipe, file: str, run: RunConfig) -> str | None:
    """Return the flags, as "--zero_padding 1 ...", by which the recipe with the file differs from the file alone.

    Return None where the recipe cannot take the file.
    """
    try:
        by_recipe, _ = apply_variables(recipe, {"CONFIG": file, "GPUS": str(run.processes)})
        by_recipe, _ = without_what_is_lacking(_of_known_size(by_recipe), of_file=True)
    except UserError:
        return None
    different = {
        name: words
        for name, words in by_recipe.explicit.items()
        if name != "model_name_or_path" and getattr(by_recipe.flags, name) != getattr(run.flags, name)
    }
    return shlex.join(flag_arguments(different)) or "none"


def _method(script: str, flags: Flags) -> tuple:
    values = FlagValues(script, flags)
    return method_of(script), bool(values.lora), bool(values.prefix_tuning), bool(values.weight_quantize_algo)


def _layout(flags: Flags) -> tuple:
    degrees = (degree(flags, f"{kind}_parallel_degree") for kind in ("tensor", "pipeline"))
    return *degrees, sharding_stage(flags)


def _model_likeness(flags: Flags, others: Flags) -> float:
    """Return how alike the names of two models of one family are, 0 to 1.

    0 where the families differ or are unknown.
    """
    try:
        names = [named_size(words.get("model_name_or_path", [""])[0]) for words in (flags, others)]
        families = {family_of_config(load_config(name)).name for name in names}
    except UserError:
        return 0.0
    ours, theirs = (name.rpartition("/")[2] for name in names)
    return difflib.SequenceMatcher(None, ours, theirs).ratio() if len(families) == 1 else 0.0


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))

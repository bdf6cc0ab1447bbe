"""The run that a recipe becomes with the user's variables, fitted to its cards, and the card that it is planned for.

run, notes = requested_run(Recipe.load(path), {"GPUS": "4"}, sizes_alone=True)
job = Job.from_run(run, card_of_plan(run))
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from launch.config.flag_values import Flags
from launch.config.recipe_file import Recipe
from launch.config.run_config import ONE_NODE, Nodes, RunConfig
from launch.config.variables import apply_variables, number
from launch.families.named_configs import named_size
from launch.plan.hardware import Card, card_named, card_of_memory, requested_card
from launch.preflight.fitted import fitted, is_on
from launch.preflight.memory import card_here
from launch.preflight.rules.model_limits import without_what_is_lacking


@dataclass(frozen=True)
class DemoFolder:
    """A folder that a demo makes for recipes/tiny.

    Attributes:
        file: Pattern of a file in it.
        command, minutes: What makes it, and how long that takes.
        config: The configuration of its model; "": it holds data.
    """

    file: str
    command: str
    minutes: str
    config: str = ""


DEMO, DEMO_GRPO = ("make demo", "5-10"), ("make demo-grpo", "3")
DEMO_FOLDERS = {
    "build/demo/model": DemoFolder("config.json", *DEMO, "llama-tiny"),
    "build/demo/data": DemoFolder("*.idx", *DEMO),
    "build/demo-grpo/base": DemoFolder("config.json", *DEMO_GRPO, "llama-letters"),
    "build/demo-grpo/prompts": DemoFolder("train.json", *DEMO_GRPO),
}
QUESTIONS = "build/demo-finetune/data"  # made by `make demo-finetune`


def requested_run(
    recipe: Recipe,
    variables: Mapping[str, str],
    nodes: Nodes = ONE_NODE,
    own: Flags | None = None,
    sizes_alone: bool = False,
) -> tuple[RunConfig, list[str]]:
    """Return the run of a recipe with the user's variables, fitted to its cards unless FIT=off; and notes for the user.

    It is packed and recomputed only if its model can be.

    Args:
        recipe: The recipe.
        variables: The user's.
        nodes: Of the run.
        own: Flags of the command line, which FIT leaves alone.
        sizes_alone: Whether a known configuration may stand for the model (known_model).

    Raises:
        UserError: For an unknown CARD, and for a value of FIT that it does not take.
    """
    run, notes = apply_variables(recipe, variables, nodes, own)
    run = known_model(run) if sizes_alone else run
    run, lacking = without_what_is_lacking(run, of_file=bool(variables.get("CONFIG")))
    card = requested_card(run.card, number("GPU_MEMORY_GB", variables)) if run.devices else None
    if fits := is_on(variables.get("FIT") or ""):
        card = card or card_here(run)
    if card:
        run = replace(run, gpu_memory_gb=card.named_gb)
    run, lines = fitted(run, card_of_plan(run)) if fits else (run, [])
    return run, [*notes, *lacking, *lines]


def known_model(run: RunConfig) -> RunConfig:
    """Return the run with a configuration in place of a missing demo model, or of a published one.

    It is enough to plan and rehearse.
    """
    name = run.flags.model_name_or_path or ""
    missing = missing_demo_paths(run).get("model_name_or_path")
    known = DEMO_FOLDERS[missing].config if missing else named_size(name)
    return run if known == name else run.changed({"model_name_or_path": [known]})


def missing_demo_paths(run: RunConfig) -> dict[str, str]:
    """Return {flag: folder} of the demos' folders that the run needs and that do not exist."""
    return {
        name: folder
        for name in ("model_name_or_path", run.method.data_flag)
        for folder in missing_demo_folders()
        if run.explicit.get(name) == [folder]
    }


def missing_demo_folders() -> list[str]:
    """Return the demos' folders that do not exist."""
    return [folder for folder, made in DEMO_FOLDERS.items() if not any(Path(folder).glob(made.file))]


def make_questions(run: RunConfig) -> list[str]:
    """Make the data of recipes/tiny/lora.sh if they do not exist. Returns the note about it."""
    if run.explicit.get("dataset_name_or_path") != [QUESTIONS] or Path(QUESTIONS).exists():
        return []
    from data_tools.stdlib_corpus import DEV_QUESTIONS, TRAIN_QUESTIONS, write_questions

    write_questions(Path(QUESTIONS))
    return [f"{QUESTIONS}: made, {TRAIN_QUESTIONS} rows to train on, {DEV_QUESTIONS} to evaluate on"]


def card_of_plan(run: RunConfig) -> Card | None:
    """Return the card that CARD names, else one of the needed memory; None for a CPU.

    It is of this machine's kind if that has as much.
    """
    if not run.devices:
        return None
    if run.card:
        return card_named(run.card)
    here = card_here(run)
    return here if here and here.named_gb == run.gpu_memory_gb else card_of_memory(run.gpu_memory_gb)

"""The variables of make's command line: which there are, and the run that they make of a recipe."""

import difflib
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from launch.config import removed
from launch.config.aliases import todays_flags
from launch.config.argument_files import read_arguments
from launch.config.flag_values import Flags, answered, overridden, parse_flags, with_flags_behind
from launch.config.layout import (
    ACCUMULATION,
    MICRO_BATCH,
    Layout,
    LayoutError,
    data_ranks_of,
    keep_global_batch,
)
from launch.config.numbers import read_count
from launch.config.recipe_file import Recipe
from launch.config.run_config import ONE_NODE, Nodes, RunConfig
from launch.config.typed import typed
from launch.errors import UserError
from launch.methods.registry import method_of

RECIPE = (
    *("MODEL", "DATA", "OUTPUT", "GPUS", "DEVICES", "GPU_MEMORY_GB", "CARD", "PROCESSES"),
    *("CONFIG", "ARGS", "FIT", "FORMAT", "MTBF_HOURS", "CALIBRATION"),
)
NODES = ("NNODES", "RANK", "MASTER", "RENDEZVOUS_MINUTES", "STOPPED_EXIT_CODE", "NETWORK")
KUBERNETES = ("IMAGE", "JOB", "RESTARTS", "DATA_CLAIM", "MODEL_CLAIM", "OUTPUT_CLAIM")  # of make k8s-X
PLAN = ("METHOD",)  # of make fit
SETUP = ("DEVICE", "CUDA", "PYTHON")  # of the Makefile itself
# Variables that are another way to write a flag; DATA is one, too (Method.data_flag).
FLAG_VARIABLES = {"MODEL": "model_name_or_path", "OUTPUT": "output_dir"}
LAYOUT = (
    *("tensor_parallel_degree", "pipeline_parallel_degree", "sharding_parallel_degree", "sharding"),
    *("sequence_parallel", "tensor_parallel_config", "pipeline_parallel_config", "sharding_parallel_config"),
    "sep_parallel_degree",
)
BATCH = (MICRO_BATCH, ACCUMULATION)
# Flags of a recipe that mean something together: where a file of arguments states one of them, the others go, too.
TOGETHER = (
    frozenset({"model_name_or_path", "tokenizer_name_or_path", "loss_first"}),
    frozenset(LAYOUT),
    frozenset(BATCH),
    frozenset({"lora", "lora_rank", "lora_alpha", "prefix_tuning", "num_prefix_tokens"})
    | {"weight_quantize_algo", "weight_double_quant", "quantize_head"},
    frozenset({"evaluation_strategy", "eval_steps", "save_strategy", "save_steps", "load_best_model_at_end"}),
    frozenset({"max_steps", "num_train_epochs"}),
    frozenset({"warmup_steps", "warmup_ratio"}),
    frozenset({"learning_rate", "min_learning_rate", "lr_scheduler_type"}),
)


def given_variables(environment: Mapping[str, str]) -> str:
    """Return a recipe's explicit variables, to be put behind a target of make: " DATA=mine GPUS=2"."""
    names = [name for name in (*RECIPE, *NODES) if environment.get(name)]
    return "".join(f" {name}={typed(environment[name])}" for name in names)


def check_variables(environment: Mapping[str, str]) -> None:
    """Raise UserError for a variable of make's command line that was removed, or is nearly another: GPU=4.

    Other variables of the environment are for other programs. GNU make hands its command line on in MAKEFLAGS, the
    variables after ` -- `, spaces in their values escaped.
    """
    known = (*RECIPE, *NODES, *KUBERNETES, *PLAN, *SETUP)
    _, _, overrides = environment.get("MAKEFLAGS", "").partition(" -- ")
    for name in re.findall(r"(?:^|(?<!\\)\s)(\w+)[:+?]*=", overrides):
        if name in removed.VARIABLES:
            raise UserError(removed.answer(f"{name}=", removed.VARIABLES[name]))
        nearest = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.75)
        if name not in known and nearest:
            raise UserError(f"{name}: found on make's command line, no recipe knows it. Did you mean {nearest[0]}?")


def apply_variables(
    recipe: Recipe, variables: Mapping[str, str], nodes: Nodes = ONE_NODE, own: Flags | None = None
) -> tuple[RunConfig, list[str]]:
    """Return the run of a recipe with the user's variables, on these nodes; and lines to print.

    gpu_memory_gb is 0 where CARD alone says it.

    Args:
        recipe: The recipe.
        variables: The user's.
        nodes: Of the run.
        own: Flags of the recipe that are the user's, from its command line.

    Raises:
        UserError: If the variables cannot be met.
    """
    flags, from_file, notes = dict(recipe.flags), {}, list(recipe.renamed)
    if file := variables.get("CONFIG"):
        if not Path(file).expanduser().is_file():
            raise UserError(
                f"CONFIG: found {file!r}, as a variable of the command line or the environment; expected a file of "
                "arguments that is there (docs/recipes.md). Correct the path, or leave the variable out: unset CONFIG."
            )
        from_file, lines = read_arguments(file, recipe.script)
        notes += lines
        replaced = {name for group in TOGETHER if not group.isdisjoint(from_file) for name in group}
        flags = overridden({name: words for name, words in flags.items() if name not in replaced}, from_file)
        if staying := [f"--{name}" for name in recipe.flags if name in flags and name not in from_file]:
            notes.append(f"of the recipe's own flags stay: {' '.join(staying)}")
    for variable, name in (FLAG_VARIABLES | {"DATA": method_of(recipe.script).data_flag}).items():
        if variables.get(variable):
            flags |= {name: [variables[variable]]}
    own = (own or {}) | _further_flags(variables)
    flags, renamed = todays_flags(with_flags_behind(flags, own))
    notes += renamed
    own, _ = todays_flags(own)
    for name in {*answered(own), *(name for name, words in own.items() if words == [""])}:  # --name= takes it away
        flags.pop(name, None)
    devices = _choose_devices(recipe.gpus, variables)
    processes = nodes.count * _choose_processes(recipe, devices, variables)
    layout = _layout_of(recipe)
    if not from_file.keys().isdisjoint(BATCH):
        layout = None  # the batch of a file counts for each card, as PaddleNLP has it
    if layout and layout.processes == processes:
        moved = not from_file.keys().isdisjoint(LAYOUT) and data_ranks_of(flags, processes)
        layout = layout if moved and moved != layout.data_ranks else None
    if layout:
        each = "GPUS" if devices else "PROCESSES"
        variable = f"NNODES x {each}" if nodes.count > 1 else each
        flags, note = keep_global_batch(flags, layout, processes, variable, own)
        notes.append(note)
    card, gpu_memory_gb = variables.get("CARD") or "", number("GPU_MEMORY_GB", variables)
    run = RunConfig(
        script=recipe.script,
        explicit=flags,
        devices=devices,
        gpu_memory_gb=gpu_memory_gb or (0 if card else recipe.gpu_memory_gb),
        card=card,
        processes=processes,
        nodes=nodes,
        network=variables.get("NETWORK") or "",
        recipe_layout=layout,
        own=own,
    )
    return run, notes


def _layout_of(recipe: Recipe) -> Layout | None:
    """Return the layout without the user's variables.

    None where flags behind the recipe file are meant for more processes.
    """
    try:
        return Layout.from_flags(recipe.flags, recipe.ranks)
    except LayoutError:
        return None


def _choose_devices(needed: int, variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the cards to use: DEVICES as given, else the first GPUS (or `needed`) of the visible ones."""
    count = number("GPUS", variables)
    listed, visible = (
        tuple(word.strip() for word in (variables.get(name) or "").split(",") if word.strip())
        for name in ("DEVICES", "CUDA_VISIBLE_DEVICES")
    )
    if not needed:
        if count or listed or variables.get("CARD"):
            raise UserError("GPUS, DEVICES, CARD: this recipe runs on the CPU. Leave them out.")
        return ()
    if listed:
        if count and count != len(listed):
            raise UserError(f"GPUS={count} does not agree with DEVICES={','.join(listed)}. Leave one out.")
        for device in listed:
            if not re.fullmatch(r"\d+|(GPU|MIG)-[\w/-]+", device):
                raise UserError(f"DEVICES: found {device!r}, expected numbers of cards with commas: DEVICES=0,1,2,3.")
        if len(set(listed)) != len(listed):
            raise UserError(f"DEVICES={','.join(listed)} names a card twice: each card takes one process.")
        return listed
    count = count or needed
    return visible[:count] if len(visible) >= count else tuple(str(index) for index in range(count))


def _choose_processes(recipe: Recipe, devices: tuple[str, ...], variables: Mapping[str, str]) -> int:
    """Return the ranks of one node: one a card; on a CPU PROCESSES, or as many as the recipe has."""
    requested = number("PROCESSES", variables)
    if requested and devices:
        raise UserError("PROCESSES: this recipe runs on cards, one process each. Say GPUS=N, or leave it out.")
    return len(devices) or requested or recipe.processes


def _further_flags(variables: Mapping[str, str]) -> Flags:
    """Return the flags of ARGS."""
    try:
        return parse_flags(shlex.split(variables.get("ARGS", "")))
    except (UserError, ValueError) as error:  # shlex's: a quotation that nothing closes
        raise UserError(f"ARGS={variables['ARGS']}: {error}") from None


def number(name: str, variables: Mapping[str, str]) -> int | None:
    """Return the value of a variable that counts something; None where it is not given."""
    value = variables.get(name)
    return read_count(name, value) if value else None


def exit_code_of_stopped(variables: Mapping[str, str]) -> int:
    """Return STOPPED_EXIT_CODE: of a run that was stopped before its last step and saved; 0 where it is not given."""
    return number("STOPPED_EXIT_CODE", variables) or 0

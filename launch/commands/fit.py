r"""Plan the fastest ways to train a model on given cards. Nothing is run; neither Paddle nor a card is needed.

    make fit MODEL=facebook/llama-13b GPUS=2 GPU_MEMORY_GB=24 METHOD=lora
    python launch/commands/fit.py --model facebook/llama-13b --gpus 2 \
        --gpu_memory_gb 24 --method lora

All layouts that the checks allow are planned, with the length and as many samples a step as in the model's recipe of
the method, or its family's. The fastest three that fit are printed as commands of make; one that leaves less than 4 %
of a card free is tight, and offered only where no other fits. Of a quantized base on one card, with an output layer of
its own, the smallest form is printed, too. MODEL, DATA, OUTPUT and ARGS mean what they mean for a recipe.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import Parser, above_zero, cards, nodes
from data_tools.language import localized
from data_tools.terminal import wrapped
from launch import preflight
from launch.config.recipe_file import ROOT, Recipe, recipe_paths
from launch.config.run_config import Nodes, RunConfig
from launch.config.variables import apply_variables, check_variables, given_variables
from launch.devices.cards import list_cards
from launch.errors import UserError
from launch.families.named_configs import load_config, named_size
from launch.guard import guarded
from launch.methods.registry import METHODS
from launch.plan.hardware import CARDS, Card, kind_of, requested_card
from launch.plan.interconnect import NETWORK_HELP, network_of
from launch.preflight.proposals import describe, layouts_on, smallest_form, smallest_layout
from launch.preflight.rules.model_limits import without_what_is_lacking

FITS = {name: fit for method in METHODS for name, fit in method.fits.items()}  # by the value of METHOD
PAGE = "docs/multi-node.md"
# Variables that describe the cards: not passed on to the recipe.
CARD_VARIABLES = (
    *("GPUS", "DEVICES", "GPU_MEMORY_GB", "CARD", "PROCESSES", "CUDA_VISIBLE_DEVICES"),
    *("NNODES", "RANK", "MASTER", "NETWORK"),
)


def main(argv: list[str]) -> None:
    """Run the command."""
    args = _parse(argv)
    check_variables(os.environ)
    card = _card(args)
    load_config(named_size(args.model))  # reports an unknown model before anything else
    nodes = Nodes(args.nnodes)
    recipe, run, variables = run_of_recipe(args.method, args.model, os.environ)
    batch = run.global_batch
    run, proposals = layouts_on(replace(run, network=args.network), card, args.gpus, nodes)
    print(wrapped(_title(args, card, batch, run), "# ", "# "))
    if nodes.count > 1:
        network = network_of(run.network, card)
        start = f"on each node, the command with its RANK=N and MASTER=ADDRESS ({PAGE})"
        print(wrapped(localized(f"network {network}; {start}"), "# ", "# "))
    if not proposals:
        raise UserError(_nothing_fits(run, args, card, batch))
    if variables["MODEL"] != args.model:
        print(localized("# once, before the first run:"), f"make download MODEL={args.model}", sep="\n")
    for number, proposal in enumerate(proposals, start=1):
        print("", wrapped(f"{number}. {localized(describe(proposal.candidate))}", "# ", "#    "), sep="\n")
        print(f"make {recipe.target}{given_variables(variables | _cards(args) | {'ARGS': proposal.arguments})}")
    smallest = smallest_form(run, card, batch)
    if smallest and all(smallest.candidate.peak_bytes < one.candidate.peak_bytes for one in proposals):
        print("", wrapped(localized(f"smallest: {localized(describe(smallest.candidate))}"), "# ", "#    "), sep="\n")
        print(f"make {recipe.target}{given_variables(variables | _cards(args) | {'ARGS': smallest.arguments})}")


def _cards(args: argparse.Namespace) -> dict[str, str]:
    """Return the variables that describe the cards, as a recipe takes them."""
    nodes = {"NNODES": str(args.nnodes), "NETWORK": args.network} if args.nnodes > 1 else {}
    memory = f"{args.gpu_memory_gb:g}" if args.gpu_memory_gb else ""
    devices = os.environ.get("DEVICES", "")
    return {"GPUS": str(args.gpus), "DEVICES": devices, "GPU_MEMORY_GB": memory, "CARD": args.card or "", **nodes}


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("python launch/commands/fit.py", __doc__)
    parser.add_argument("--model", default="facebook/llama-7b", help="model: a name, a directory or a config.json")
    parser.add_argument("--gpus", type=cards, default=1, help="number of cards of a node")
    parser.add_argument("--nnodes", type=nodes, default=1, help="number of nodes; default %(default)s")
    parser.add_argument("--network", default="", metavar="NETWORK", help=NETWORK_HELP)
    parser.add_argument(
        "--gpu_memory_gb", type=above_zero, help="memory of each card in GB; default: that of the cards here"
    )
    parser.add_argument("--card", help=f"kind of card, where its memory does not tell: {', '.join(CARDS)}")
    # A word in the place of the choices: the usage line with all of them does not fit a terminal.
    parser.add_argument(
        "--method", choices=FITS, default="full", metavar="METHOD", help=f"method of training: {', '.join(FITS)}"
    )
    return parser.parse_args(argv)


def _card(args: argparse.Namespace) -> Card:
    """Return the card that --card or --gpu_memory_gb names, else the one of this machine."""
    if requested := requested_card(args.card, args.gpu_memory_gb):
        return requested
    here = list_cards()
    if not here:
        raise UserError(
            "GPU_MEMORY_GB: not given, and there are no cards here to look at. Give it, such as GPU_MEMORY_GB=24."
        )
    return kind_of(here[0])


def _recipe_of(method: str, model: str) -> tuple[Recipe, str]:
    """Return the recipe of a method for the model, and the ARGS that make it the method's.

    It is the model's, else the one of its family with the nearest name, else the method's.
    """
    path, arguments = ROOT / "recipes" / FITS[method].recipe, FITS[method].arguments
    family, name = load_config(named_size(model))["model_type"], named_size(Path(model).name).lower()
    recipe, closest = None, -1
    for other in (Recipe.load(other) for other in recipe_paths(ROOT) if other.name == path.name):
        theirs = Path(other.flags["model_name_or_path"][0])
        shared = len(os.path.commonprefix([theirs.name, name]))
        if other.gpus and load_config(str(theirs))["model_type"] == family and shared > closest:
            recipe, closest = other, shared
    # The chat template of another family's model is left out.
    return (recipe, arguments) if recipe else (Recipe.load(path), f"--chat_template= {arguments}".rstrip())


def run_of_recipe(method: str, model: str, variables: Mapping[str, str]) -> tuple[Recipe, RunConfig, dict[str, str]]:
    """Return the method's recipe, its run on the recipe's own cards, and the variables that make it so.

    The run has the model and the user's DATA, OUTPUT and ARGS. A published model is planned by its sizes, and its MODEL
    is the folder that make download writes. The output directory is named after the model.
    """
    recipe, arguments = _recipe_of(method, model)
    name = Path(model).name.removesuffix(".json")
    given = {key: value for key, value in variables.items() if key not in CARD_VARIABLES}
    given["ARGS"] = f"{arguments} {variables.get('ARGS', '')}".strip()
    given["OUTPUT"] = variables.get("OUTPUT") or f"./checkpoints/{name}-{method}"
    run, _ = apply_variables(recipe, given | {"MODEL": named_size(model)})
    run, _ = without_what_is_lacking(run)
    return recipe, run, given | {"MODEL": model if named_size(model) == model else f"models/{name}"}


def _title(args: argparse.Namespace, card: Card, batch: int, run: RunConfig) -> str:
    taken = "" if args.card else f", planned as {card.name} (CARD=... names another kind)"
    rough = "" if card.calibrated and args.nnodes == 1 else "; uncalibrated (docs/plan.md)"
    length = getattr(run.flags, run.method.length_flag)
    cards = f"{f'{args.nnodes} nodes x ' if args.nnodes > 1 else ''}{args.gpus} x {card.named_gb} GB"
    samples = localized(f", {batch} samples of {length:,} tokens a step")
    return f"{args.model}, {args.method}, {cards}" + localized(taken) + samples + localized(rough)


def _nothing_fits(run: RunConfig, args: argparse.Namespace, card: Card, batch: int) -> str:
    smallest = smallest_layout(run, card, batch)
    if smallest is None:
        findings = preflight.run_on_flags(run)
        faults = "; ".join(f"{finding.subject}: {finding.found}" for finding in findings if not finding.ok)
        return f"no way to divide {batch} samples a step over {run.processes} cards is legal. {faults}".rstrip()
    smaller = "".join(f"METHOD={name}, " for name in FITS[args.method].smaller)
    return (
        f"nothing fits. The smallest is {describe(smallest)}. "
        f'{smaller}shorter samples (ARGS="--max_length N"), more or larger cards, or a smaller model.'
    )


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))

"""Plan the fastest ways to train a model on given cards. Nothing is run; neither Paddle nor a card is needed.

    make fit MODEL=facebook/llama-13b GPUS=2 GPU_MEMORY_GB=24 METHOD=lora
    python launch/commands/fit.py --model facebook/llama-13b --gpus 2 \\
        --gpu_memory_gb 24 --method lora

All layouts that the checks allow are planned, with as many samples a step as in the recipe of the method. The fastest
three that fit are printed as commands. MODEL, DATA, OUTPUT and ARGS have the same meaning as for a recipe.
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
from data_tools.terminal import wrapped
from launch import preflight
from launch.config.recipe_file import Recipe
from launch.config.run_config import Nodes, RunConfig
from launch.config.variables import apply_variables, check_variables
from launch.devices.cards import list_cards
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.guard import guarded
from launch.plan.changes import Candidate, describe, fastest_layouts, smallest_layout
from launch.plan.hardware import CARDS, Card, kind_of, requested_card
from launch.plan.interconnect import NETWORK_HELP, network_of
from launch.preflight.rules.model_limits import without_what_is_lacking
from launch.processes.command import LaunchCommand

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
# A chat template of the recipe's own model is that of no other.
ITS_OWN: dict[str, list[str] | None] = {"chat_template": None}
UNQUANTIZED: dict[str, list[str] | None] = {"weight_quantize_algo": None, "weight_double_quant": None}
# method -> (recipe whose flags are used, flags that replace some of them; None: it is left out)
METHODS: dict[str, tuple[Path, dict[str, list[str] | None]]] = {
    "pretrain": (RECIPES / "llama-7b" / "pretrain.sh", {}),
    "full": (RECIPES / "llama-7b" / "finetune.sh", {}),
    "lora": (RECIPES / "llama-7b" / "lora.sh", {}),
    "qlora": (RECIPES / "llama-7b" / "lora.sh", {"weight_quantize_algo": ["nf4"]}),
    "prefix": (RECIPES / "llama-7b" / "lora.sh", {"lora": ["0"], "prefix_tuning": ["1"]}),
    "dpo": (RECIPES / "llama3-8b" / "dpo.sh", ITS_OWN),
    "dpo-lora": (RECIPES / "qwen2.5-7b" / "dpo-lora.sh", ITS_OWN | UNQUANTIZED),
    "dpo-qlora": (RECIPES / "qwen2.5-7b" / "dpo-lora.sh", ITS_OWN),
    "kto-lora": (RECIPES / "qwen3-8b" / "kto-lora.sh", ITS_OWN | UNQUANTIZED),
}
# method -> those that need less memory
SMALLER = {
    "full": "METHOD=lora, METHOD=qlora, ",
    "lora": "METHOD=qlora, ",
    "dpo": "METHOD=dpo-lora, METHOD=dpo-qlora, ",
    "dpo-lora": "METHOD=dpo-qlora, ",
}
PAGE = "docs/multi-node.md"
# Variables that describe the cards: not passed on to the recipe.
CARD_VARIABLES = ("GPUS", "DEVICES", "GPU_MEMORY_GB", "CARD", "PROCESSES", "CUDA_VISIBLE_DEVICES")


def main(argv: list[str]) -> None:
    args = _parse(argv)
    check_variables(os.environ)
    card = _card(args)
    load_config(args.model)  # reports an unknown model before anything else
    run = run_of_recipe(args.method, args.model, os.environ)
    nodes = Nodes(args.nnodes)
    batch = run.global_batch
    run = RunConfig(run.script, run.words, processes=nodes.count * args.gpus, nodes=nodes, network=args.network)
    candidates = fastest_layouts(run, card, preflight.is_legal, batch)
    print(wrapped(_title(args, card, batch), "# ", "# "))
    if nodes.count > 1:
        network = network_of(run.network, card)
        print(wrapped(f"network {network}; how to start the script on each node: {PAGE}", "# ", "# "))
    if not candidates:
        raise UserError(_nothing_fits(run, args, card, batch))
    for number, candidate in enumerate(candidates, start=1):
        print("", wrapped(f"{number}. {describe(candidate)}", "# ", "#    "), sep="\n")
        print(text_of(command(run.script, candidate), nodes))


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
        "--method", choices=METHODS, default="full", metavar="METHOD", help=f"method of training: {', '.join(METHODS)}"
    )
    return parser.parse_args(argv)


def _card(args: argparse.Namespace) -> Card:
    """The card that --card or --gpu_memory_gb names, else the one of this machine."""
    if requested := requested_card(args.card, args.gpu_memory_gb):
        return requested
    here = list_cards()
    if not here:
        raise UserError(
            "GPU_MEMORY_GB: not given, and there are no cards here to look at. Give it, such as GPU_MEMORY_GB=24."
        )
    return kind_of(here[0])


def run_of_recipe(method: str, model: str, variables: Mapping[str, str]) -> RunConfig:
    """The method's recipe with a model and the user's DATA, OUTPUT and ARGS.

    The tokenizer is that of the model, and the output directory is named after it.
    """
    path, others = METHODS[method]
    recipe = Recipe.load(path)
    flags = {name: words for name, words in (recipe.flags | others).items() if words is not None}
    given = {name: value for name, value in variables.items() if name not in CARD_VARIABLES}
    run, _ = apply_variables(replace(recipe, flags=flags), given | {"MODEL": model})
    run, _ = without_what_is_lacking(run)
    words = run.words | {"tokenizer_name_or_path": [model]}
    if not variables.get("OUTPUT"):
        words |= {"output_dir": [f"./checkpoints/{Path(model).name.removesuffix('.json')}-{method}"]}
    return run.with_words(words)


def _title(args: argparse.Namespace, card: Card, batch: int) -> str:
    taken = "" if args.card else f", planned as {card.name} (CARD=... names another kind)"
    rough = "" if card.calibrated and args.nnodes == 1 else "; uncalibrated (docs/plan.md)"
    cards = f"{f'{args.nnodes} nodes x ' if args.nnodes > 1 else ''}{args.gpus} x {card.named_gb} GB"
    return f"{args.model}, {args.method}, {cards}{taken}, {batch} samples a step{rough}"


def command(script: str, candidate: Candidate) -> LaunchCommand:
    gpus = candidate.job.layout.processes
    devices = os.environ.get("DEVICES") or ",".join(map(str, range(gpus)))
    return LaunchCommand.of_run(RunConfig(script, candidate.flags, tuple(devices.split(",")), processes=gpus))


def text_of(command: LaunchCommand, nodes: Nodes) -> str:
    """The command; of several nodes what follows the launcher, whose own flags name addresses that nobody has given."""
    return command.text() if nodes.count == 1 else command.script_text()


def _nothing_fits(run: RunConfig, args: argparse.Namespace, card: Card, batch: int) -> str:
    smallest = smallest_layout(run, card, preflight.is_legal, batch)
    if smallest is None:
        findings = preflight.run_on_flags(run)
        faults = "; ".join(f"{finding.subject}: {finding.found}" for finding in findings if not finding.ok)
        return f"no way to divide {batch} samples a step over {run.processes} cards is legal. {faults}".rstrip()
    smaller = SMALLER.get(args.method, "")
    return (
        f"nothing fits. The smallest is {describe(smallest)}. "
        f'{smaller}shorter samples (ARGS="--max_length N"), more or larger cards, or a smaller model.'
    )


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))

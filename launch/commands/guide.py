r"""Print the tables of docs/low-memory.md for any model and cards: what saves memory, and what sharding costs.

    make measures MODEL=baichuan-13b GPUS=2 GPU_MEMORY_GB=24
    python launch/commands/guide.py measures baichuan-13b --gpus 2 \
        --gpu_memory_gb 24

The page's own tables: python -m docs.tools.guide_tables.
"""

import argparse
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import Parser, above_zero, cards
from launch.families.named_configs import named_size
from launch.guard import guarded
from launch.plan.hardware import CARDS, PCIE, card_named, card_of_memory
from launch.plan.measures import ComparedCase, measures_table, memory_table, order_table, recompute_table
from launch.plan.time_plan import with_pcie
from launch.reporting.markdown import markdown

TABLES = {
    "measures": measures_table,
    "sharding": memory_table,
    "orders": order_table,
    "recompute": recompute_table,
}
SLOTS = {f"{generation}x{lanes}": (generation, lanes) for generation, lanes in PCIE}


def main(argv: list[str]) -> None:
    """Run the command."""
    case, table = case_and_table(argv)
    print(f"{case.title}{'' if case.card.calibrated else '; this kind of card is uncalibrated (docs/plan.md)'}\n")
    print(table)


def case_and_table(argv: list[str]) -> tuple[ComparedCase, str]:
    """Return the described case, and the table as Markdown."""
    args = _parser().parse_args(argv)
    case = _case(args)
    head, *rows = TABLES[args.table](case)
    return case, markdown(head, rows)


def _parser() -> argparse.ArgumentParser:
    parser = Parser("python launch/commands/guide.py", __doc__)
    parser.add_argument("table", choices=TABLES, help="which table")
    parser.add_argument("model", help="model: a name, a directory or a config.json")
    parser.add_argument("--gpus", type=cards, default=1, help="number of cards, all in one machine")
    parser.add_argument(
        "--gpu_memory_gb",
        type=above_zero,
        default=24,
        help="memory of each card in GB, as in its name; default %(default)s",
    )
    parser.add_argument("--card", help=f"kind of card, where its memory does not tell: {', '.join(CARDS)}")
    parser.add_argument(
        "--pcie", choices=SLOTS, help="PCIe generation and lanes of each card; default: as the card is made"
    )
    parser.add_argument("--length", type=above_zero, default=1024, help="tokens of a sample; default %(default)s")
    parser.add_argument(
        "--batch", type=above_zero, default=16, help="samples of a step on all cards together; default %(default)s"
    )
    return parser


def _case(args: argparse.Namespace) -> ComparedCase:
    """Return the case of the arguments. Raises UserError where there is no such card."""
    card = card_named(args.card) if args.card else card_of_memory(args.gpu_memory_gb)
    if args.pcie:
        card = with_pcie(card, *SLOTS[args.pcie])
    return ComparedCase(named_size(args.model), args.gpus, card, args.length, args.batch)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))

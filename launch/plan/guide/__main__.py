"""The command of launch/plan/guide: prints a table, or makes all those of a page anew.

    python -m launch.plan.guide measures llama-7b --gpus 2 --gpu_memory_gb 24
    python -m launch.plan.guide --write docs/low-memory.md

In a page a table stands between two marks: <!-- guide: TABLE MODEL OPTIONS --> and <!-- end of guide -->.
"""

import argparse
import re
import sys
from pathlib import Path

from data_tools.cli import Parser, above_zero
from launch.errors import UserError
from launch.guard import guarded
from launch.pages import markdown, rewrite
from launch.plan.guide.case import Case
from launch.plan.guide.measures import measures_table
from launch.plan.guide.recompute import recompute_table
from launch.plan.guide.sharding import memory_table, order_table
from launch.plan.hardware import CARDS, PCIE, card_named, card_of_memory
from launch.plan.time.plan import with_pcie

TABLES = {
    "measures": measures_table,
    "sharding": memory_table,
    "orders": order_table,
    "recompute": recompute_table,
}
SLOTS = {f"{generation}x{lanes}": (generation, lanes) for generation, lanes in PCIE}
MARKED = re.compile(r"(<!-- guide: (.*?) -->\n).*?(<!-- end of guide -->)", re.DOTALL)


def main(argv: list[str]) -> None:
    if argv[:1] == ["--write"]:
        for name in argv[1:]:
            rewrite(Path(name), with_tables)
        return
    args = _parser().parse_args(argv)
    case, table = _case(args), _table(args)
    print(f"{case.title}{'' if case.card.calibrated else '; this kind of card is uncalibrated (docs/plan.md)'}\n")
    print(table)


def with_tables(text: str) -> str:
    """A page with its tables as they are now. Raises UserError where it has none."""
    if not MARKED.search(text):
        raise UserError("no line <!-- guide: TABLE MODEL OPTIONS --> with an <!-- end of guide --> behind it.")
    return MARKED.sub(lambda match: f"{match[1]}\n{_table(_parser().parse_args(match[2].split()))}\n\n{match[3]}", text)


def _table(args: argparse.Namespace) -> str:
    head, *rows = TABLES[args.table](_case(args))
    return markdown(head, rows)


def _parser() -> argparse.ArgumentParser:
    parser = Parser("python -m launch.plan.guide", __doc__)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("model", help="a name, a model directory or a config.json")
    parser.add_argument("--gpus", type=above_zero, default=1, help="how many cards, all in one machine")
    parser.add_argument("--gpu_memory_gb", type=above_zero, default=24, help="memory of each, as in its name")
    parser.add_argument("--card", help=f"which kind, where memory alone leaves it open: {', '.join(CARDS)}")
    parser.add_argument("--pcie", choices=SLOTS, help="the slot of each: generation, lanes; default: the card's")
    parser.add_argument("--length", type=above_zero, default=1024, help="tokens of a sample")
    parser.add_argument("--batch", type=above_zero, default=16, help="samples of a step, of all cards together")
    return parser


def _case(args: argparse.Namespace) -> Case:
    """Raises UserError where there is no such card."""
    card = card_named(args.card) if args.card else card_of_memory(args.gpu_memory_gb)
    if args.pcie:
        card = with_pcie(card, *SLOTS[args.pcie])
    return Case(args.model, args.gpus, card, args.length, args.batch)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))

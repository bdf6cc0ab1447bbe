"""Resumed runs beside uninterrupted ones: which layouts are equal to the last bit.

    .venv/bin/python benchmarks/resuming.py                               # all cases of tests/distributed/resuming.py
    .venv/bin/python benchmarks/resuming.py pp2 stage3-2                  # those layouts
    .venv/bin/python benchmarks/resuming.py --markdown docs/resume.md     # replaces the table in that file

Each case trains a hidden-64 LLaMA to the end, then once more from the checkpoint on the way. Compared are loss,
learning rate, gradient norm and tokens of every step, and every file of the last checkpoint: weights, moments, powers
of beta, schedule, random numbers of every rank.
"""

import argparse
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not benchmarks/

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.page import put
from launch.reporting.markdown import markdown
from tests.distributed.resuming import CASES, Case, Outcome, resume
from tests.ranks import RankServer

HEADINGS = ("layout", "training", "resumed at", "steps compared", "to the bit")


def main(argv: list[str]) -> None:
    names = list(dict.fromkeys(case.layout.name for case in CASES))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("layout", nargs="*", metavar="LAYOUT", help=f"of: {', '.join(names)}")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="replace the table in this file")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.layout) - set(names):
        parser.error(f"no layout {', '.join(sorted(unknown))}; there are: {', '.join(names)}")
    cases = [case for case in CASES if case.layout.name in (arguments.layout or names)]
    rows = measure(cases)
    table = Table(*HEADINGS, title="resumed against uninterrupted")
    for row in rows:
        table.add_row(*row)
    Console(width=100).print(table)
    if arguments.markdown:
        put(arguments.markdown, "resuming.py", markdown(HEADINGS, rows, numbers=(2, 3)) + "\n")


def measure(cases: list[Case]) -> list[tuple[str, ...]]:
    ranks = RankServer()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "False").mkdir()
        ranks(1, "tests.distributed.training_ranks:make_material", str(root / "False"), 4)
        ranks(1, "tests.training.finetune_material:make_material", str(root / "True"))
        rows = []
        for number, case in enumerate(track(cases, "training", console=Console(stderr=True))):
            outcome = resume(ranks, root / str(bool(case.method)), root / str(number), case)
            rows.append((*case.words, str(case.at), str(case.at), verdict(outcome)))
    ranks.close()
    return rows


def verdict(outcome: Outcome) -> str:
    if outcome.exact:
        return "equal"
    return f"different: {', '.join(outcome.files) or 'records'}"


if __name__ == "__main__":
    main(sys.argv[1:])

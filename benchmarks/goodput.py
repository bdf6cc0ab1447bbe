"""The formula of launch/plan/goodput.py beside a simulation of runs that fail.

    .venv/bin/python benchmarks/goodput.py                            # 4000 interruptions a row, about 5 s
    .venv/bin/python benchmarks/goodput.py --markdown    # writes benchmarks/results/goodput.md

70 billion parameters of 2 bytes on each 32 cards, with 12 bytes of the optimizer on all, steps of 10 s, A100-80G, 8
cards a node. Every node has a clock of its own that says when it fails next, also while the run restarts. The run goes
back to the newest checkpoint that was whole by then. Saves and restarts take as long as the plan takes them to
(launch/plan/goodput.py).
"""

import argparse
import heapq
import sys
from pathlib import Path
from random import Random

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not benchmarks/

from rich.console import Console
from rich.table import Table

from benchmarks.page import put
from launch.plan.goodput import FIRST_COPY, MTBF_HOURS, Goodput, goodput_of
from launch.plan.hardware import CARDS
from launch.plan.work import Pace
from launch.reporting.markdown import markdown

WEIGHT_BYTES, OPTIMIZER_BYTES, HOLDERS = 70e9 * 2, 70e9 * 12, 32  # so many cards hold the weights once
STEP_SECONDS, PER_NODE = 10.0, 8
RANKS = (64, 1024, 4096, 16_384)
SAVE_STEPS = 200  # of our recipes
HEADINGS = (
    *("cards", "saved", "interruptions a day", "restart", "checkpoint"),
    *("save_steps", "formula", "simulated", "difference"),
)


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--failures", type=int, default=4000, help="interruptions of a row; default %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers; default %(default)s")
    parser.add_argument("--markdown", action="store_true", help="also write the page of the results")
    arguments = parser.parse_args(argv)
    rows = compare(arguments.failures, arguments.seed)
    table = Table(*HEADINGS, title="share of time that trains")
    for row in rows:
        table.add_row(*row)
    Console(width=120).print(table)
    if arguments.markdown:
        put("goodput", "plan", markdown(HEADINGS, rows, (0, *range(2, len(HEADINGS)))))


def compare(failures: int, seed: int) -> list[list[str]]:
    """Return the rows of the table: the formula beside the simulation."""
    rows = []
    for ranks in RANKS:
        for in_background in (False, True):
            plan = case(ranks, in_background)
            for save_steps in (SAVE_STEPS, plan.best_save_steps):
                formula, simulated = plan.share(save_steps), simulate(plan, ranks, save_steps, failures, seed)
                rows.append(
                    [
                        f"{ranks:,}",
                        "in the background" if in_background else "at once",
                        f"{plan.per_day:.2g}",
                        f"{plan.restart_seconds:.0f} s",
                        f"{plan.stall:.2g} s",
                        f"{save_steps:,}",
                        f"{formula:.2%}",
                        f"{simulated:.2%}",
                        f"{simulated / formula - 1:+.2%}",
                    ]
                )
    return rows


def case(ranks: int, in_background: bool) -> Goodput:
    """Return the plan of one row."""
    pace = Pace(CARDS["A100-80G"], "bfloat16", 2)
    written = (WEIGHT_BYTES + OPTIMIZER_BYTES) / ranks
    restored = WEIGHT_BYTES / HOLDERS + OPTIMIZER_BYTES / ranks
    return goodput_of(written, restored, pace, STEP_SECONDS, in_background, 3600 * MTBF_HOURS / ranks)


def simulate(plan: Goodput, ranks: int, save_steps: int, failures: int, seed: int) -> float:
    """Return the share of the time until `failures` failures in which the run made steps that were not lost."""
    random, node_mtbf = Random(seed), plan.mtbf * ranks / PER_NODE
    clocks = [random.expovariate(1 / node_mtbf) for _ in range(ranks // PER_NODE)]
    heapq.heapify(clocks)
    first_copy = plan.restart.get(FIRST_COPY, 0.0)
    restart = plan.restart_seconds - first_copy
    now, kept = 0.0, 0
    for _ in range(failures):
        fails = clocks[0]
        kept += save_steps * _whole_checkpoints(plan, save_steps * plan.step, fails - now - restart, first_copy)
        now = fails
        heapq.heapreplace(clocks, now + random.expovariate(1 / node_mtbf))
    return kept * plan.step / now


def _whole_checkpoints(plan: Goodput, interval: float, lives: float, first_copy: float) -> int:
    """Return how many checkpoints become whole while training lives for `lives` seconds after its start."""
    count, now, whole = 0, 0.0, 0.0
    wait = plan.stall + first_copy
    while True:
        now = max(now + interval, whole) + wait  # a save waits until the one before it is whole
        whole = now + plan.latency
        if whole > lives:
            return count
        count, wait = count + 1, plan.stall


if __name__ == "__main__":
    main(sys.argv[1:])

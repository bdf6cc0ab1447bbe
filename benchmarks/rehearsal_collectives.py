"""An all-reduce of the ranks of a rehearsal: through shared memory, and through gloo, which several nodes use.

    .venv/bin/python benchmarks/rehearsal_collectives.py           # 20 seconds
    .venv/bin/python benchmarks/rehearsal_collectives.py --smoke   # once, of two ranks: does it run?

Milliseconds, the shortest mean of some rounds in which both have their turn, of 4,096 float32 values. The ratio is the
median over the rounds.
"""

import argparse
import sys
import time
from operator import truediv
from pathlib import Path
from statistics import median

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not benchmarks/

from rich.console import Console
from rich.table import Table

from benchmarks.cpu_training import machine_facts
from tests.ranks import RankServer

VALUES, CALLS = 4096, 100
WAYS = {"shared memory": "1", "gloo": "2"}  # nodes that the ranks are told of


def seconds(calls: int) -> float:
    """Return the mean seconds of an all-reduce on each rank."""
    import paddle
    import paddle.distributed as dist

    from launch.rehearsal.collectives import install

    install()
    dist.init_parallel_env()
    values = paddle.ones([VALUES])
    dist.all_reduce(values)  # connects the ranks
    began = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(values)
    return (time.perf_counter() - began) / calls


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--smoke", action="store_true", help="two ranks, few calls")
    args = parser.parse_args(argv)
    sizes, rounds, calls = ((2,), 1, 3) if args.smoke else ((2, 4, 8), 3, CALLS)
    table = Table("ranks", *WAYS, "gloo / shared memory", title="milliseconds of an all-reduce")
    ranks = RankServer()
    for size in sizes:
        found = {way: [] for way in WAYS}
        for _ in range(rounds):
            for way, nodes in WAYS.items():
                of_ranks = ranks(
                    size, "benchmarks.rehearsal_collectives:seconds", calls, environment={"PADDLE_NNODES": nodes}
                )
                found[way].append(max(of_ranks))
        ours, gloo = found.values()
        table.add_row(
            str(size), f"{1e3 * min(ours):.3g}", f"{1e3 * min(gloo):.3g}", f"{median(map(truediv, gloo, ours)):.3g}"
        )
    ranks.close()
    Console().print(table)
    Console().print(machine_facts(threads=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""How long training waits for a checkpoint: in the background, at once, and by plain paddlenlp.

    .venv/bin/python benchmarks/checkpoint_stall.py            # 100 M parameters, 1.2 GB a checkpoint, about 4 minutes
    .venv/bin/python benchmarks/checkpoint_stall.py --smoke    # a tiny model: does it run?
    .venv/bin/python benchmarks/checkpoint_stall.py --output benchmarks/results/checkpoint_stall.json
    .venv/bin/python benchmarks/checkpoint_stall.py --markdown    # writes benchmarks/results/checkpoint_stall.md

One process trains a LLaMA of 12 layers with hidden size 768 on a CPU and saves after each of its last 4 steps, when the
save before is done. Shown: the median seconds that training waits, and ratios to it. Ours hashes every file and has it
on the disk before training goes on (--use_async_save 0) or while it goes on (1); paddlenlp's unified checkpoint
does neither. The directory for temporary files (TMPDIR) is where checkpoints are written; 5 GB must be free there.
"""

import datetime
import json
import os
import shlex
import statistics
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not benchmarks/

from rich.console import Console
from rich.table import Table

from benchmarks.cpu_training import machine_facts
from benchmarks.page import conditions, put, stored_parser
from launch.reporting.markdown import markdown
from launch.reporting.records import package_versions
from tests.ranks import RankServer

SIZES = {"vocab_size": 10_000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12}
SMOKE = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
WAYS = {"in the background": "asynchronous", "at once": "synchronous", "paddlenlp's own": "upstream"}
WORKER = "benchmarks.checkpoint_stall_worker"
HEADINGS = ("saving", "training waits", "of at once", "of paddlenlp's own")
RESULTS = Path(__file__).resolve().parent / "results" / "checkpoint_stall.json"
BAR = 0.1  # of saving at once


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = stored_parser(__doc__)
    parser.add_argument("--smoke", action="store_true", help="a tiny model")
    arguments = parser.parse_args(argv)
    if arguments.markdown:
        put("checkpoint_stall", "resume", page(json.loads(RESULTS.read_text())))
        return 0
    report = measure(arguments.smoke) | {"command": shlex.join(["python", "benchmarks/checkpoint_stall.py", *argv])}
    table = Table(title=f"{report['parameters']:,} parameters, {report['bytes']['at once'] / 1e9:.2f} GB each")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "saving" else "right")
    for row in rows(report):
        table.add_row(*row)
    Console(width=80).print(table)
    if arguments.output:
        arguments.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    medians = _medians(report)
    return 0 if arguments.smoke or medians["in the background"] <= BAR * medians["at once"] else 1


def measure(smoke: bool) -> dict:
    """Return the "bytes" of a checkpoint and "seconds" of each save, by way."""
    load_before, ranks, found = os.getloadavg()[0], RankServer(), {}
    with tempfile.TemporaryDirectory() as directory:
        ranks(1, f"{WORKER}:make_material", directory, SMOKE if smoke else SIZES)
        for name, way in WAYS.items():
            [found[name]] = ranks(1, f"{WORKER}:stalls", directory, way, time_limit=900)
    ranks.close()
    return {
        "date": datetime.date.today().isoformat(),
        "machine": machine_facts(os.cpu_count()) | {"load_before": load_before},
        "versions": package_versions(),
        "parameters": found["at once"]["parameters"],
        "bytes": {name: one["bytes"] for name, one in found.items()},
        "seconds": {name: one["seconds"] for name, one in found.items()},
    }


def rows(report: dict) -> list[list[str]]:
    """Return the rows of the table: seconds of each way and ratios to two of them."""
    medians = _medians(report)
    at_once, upstream = medians["at once"], medians["paddlenlp's own"]
    return [[name, f"{one:.2g} s", f"{one / at_once:.2g}", f"{one / upstream:.2g}"] for name, one in medians.items()]


def _medians(report: dict) -> dict[str, float]:
    return {name: statistics.median(seconds) for name, seconds in report["seconds"].items()}


def page(report: dict) -> str:
    """Return the page of a report."""
    return f"{markdown(HEADINGS, rows(report), range(1, len(HEADINGS)))}\n\n{conditions(report)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

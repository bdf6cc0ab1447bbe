"""How long training waits for a checkpoint: in the background, at once, and by plain paddlenlp.

    .venv/bin/python benchmarks/checkpoint_stall.py            # 100 M parameters, 1.2 GB a checkpoint, about 4 minutes
    .venv/bin/python benchmarks/checkpoint_stall.py --smoke    # a tiny model: does it run?
    .venv/bin/python benchmarks/checkpoint_stall.py --output benchmarks/results/checkpoint_stall.json

One process trains a LLaMA of 12 layers with hidden size 768 on a CPU and saves after each of its last 4 steps, when the
save before is done. Shown: the median seconds that training waits, and ratios to it. Ours hashes every file and has it
on the disk before training goes on (--use_async_save 0) or while it goes on (1); paddlenlp's unified checkpoint
does neither. The directory for temporary files (TMPDIR) is where checkpoints are written; 5 GB must be free there.
"""

import argparse
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
from launch.reporting.summary import package_versions
from tests.ranks import RankServer

SIZES = {"vocab_size": 10_000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12}
SMOKE = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
WAYS = {"in the background": "asynchronous", "at once": "synchronous", "paddlenlp's own": "upstream"}
WORKER = "benchmarks.checkpoint_stall_worker"
BAR = 0.1  # of saving at once


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--smoke", action="store_true", help="a tiny model")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write everything measured to this JSON file")
    arguments = parser.parse_args(argv)
    smoke, load_before = arguments.smoke, os.getloadavg()[0]
    ranks = RankServer()
    found = {}
    with tempfile.TemporaryDirectory() as directory:
        ranks(1, f"{WORKER}:make_material", directory, SMOKE if smoke else SIZES)
        for name, way in WAYS.items():
            [found[name]] = ranks(1, f"{WORKER}:stalls", directory, way, time_limit=900)
    ranks.close()
    medians = {name: statistics.median(one["seconds"]) for name, one in found.items()}
    at_once, upstream = medians["at once"], medians["paddlenlp's own"]
    table = Table(title=f"{found['at once']['parameters']:,} parameters, {found['at once']['bytes'] / 1e9:.2f} GB each")
    for heading in ("saving", "training waits", "of at once", "of paddlenlp's own"):
        table.add_column(heading, justify="left" if heading == "saving" else "right")
    for name, seconds in medians.items():
        table.add_row(name, f"{seconds:.2f} s", f"{seconds / at_once:.3f}", f"{seconds / upstream:.3f}")
    Console(width=80).print(table)
    if arguments.output:
        report = {
            "command": shlex.join(["python", "benchmarks/checkpoint_stall.py", *argv]),
            "date": datetime.date.today().isoformat(),
            "machine": machine_facts(1) | {"load_before": load_before},
            "versions": package_versions(),
            "parameters": found["at once"]["parameters"],
            "bytes": {name: one["bytes"] for name, one in found.items()},
            "seconds": {name: one["seconds"] for name, one in found.items()},
        }
        arguments.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if smoke or medians["in the background"] <= BAR * at_once else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

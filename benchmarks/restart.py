"""What a run that is started again takes, and how long training waits for checkpoints of several sizes.

    .venv/bin/python benchmarks/restart.py            # about 3 minutes, less than 3 GB of memory
    .venv/bin/python benchmarks/restart.py --smoke    # tiny models, once: does it run?
    .venv/bin/python benchmarks/restart.py --output benchmarks/results/restart.json
    .venv/bin/python benchmarks/restart.py --markdown    # writes benchmarks/results/restart.md

One process on a CPU. Each value is the best of several trials, so that other work of the machine counts little. Files
are written to the directory for temporary files (TMPDIR), where 3 GB must be free, and read from the kernel's cache.
"""

import datetime
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # the repository, not benchmarks/

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.checkpoint_stall import SIZES, SMOKE, WORKER
from benchmarks.cpu_training import machine_facts
from benchmarks.page import conditions, put, stored_parser
from launch.checkpoint.manifest import sha256
from launch.checkpoint.safetensors_file import header_bytes, read_header
from launch.reporting.markdown import markdown
from launch.reporting.records import package_versions
from tests.ranks import RankServer

LAYERS = (1, 6, 12)  # of the models of benchmarks/checkpoint_stall.py
TRIALS = 5
READ_BYTES = 1 << 29
HEADINGS = ("what", "measured")
RESULTS = ROOT / "benchmarks" / "results" / "restart.json"


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = stored_parser(__doc__)
    parser.add_argument("--smoke", action="store_true", help="tiny models, once")
    arguments = parser.parse_args(argv)
    if arguments.markdown:
        put("restart", "resume", page(json.loads(RESULTS.read_text())))
        return
    models = [SMOKE | {"num_hidden_layers": count} for count in (1, 2)]
    report = measure(models, 1) if arguments.smoke else measure([SIZES | {"num_hidden_layers": n} for n in LAYERS])
    report |= {"command": shlex.join(["python", "benchmarks/restart.py", *argv])}
    table = Table(*HEADINGS)
    for row in rows(report):
        table.add_row(*row)
    Console(width=100).print(table)
    if arguments.output:
        arguments.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def measure(models: list[dict], trials: int = TRIALS) -> dict:
    """Return what restarts cost on this machine.

    The dict has the "start_seconds" of a tiny model, "hash_rate" and "read_rate" in bytes a second, and the "stalls" of
    saves in the background: for each model the "bytes" of a checkpoint and the "seconds" that training waited.
    """
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as directory:
        root, ranks = Path(directory), RankServer()
        start = min(_seconds_of_starts(root, ranks, trials))
        file = root / "model.safetensors"
        _write(file)
        hashing, reading = (min(_seconds(work, file) for _ in range(trials)) for work in (sha256, _read))
        file.unlink()
        stalls = []
        for number, sizes in enumerate(models):
            material = root / str(number)
            material.mkdir()
            ranks(1, f"{WORKER}:make_material", str(material), sizes)
            [found] = ranks(1, f"{WORKER}:stalls", str(material), "asynchronous", time_limit=900)
            stalls.append({"bytes": found["bytes"], "seconds": found["seconds"]})
        ranks.close()
    return {
        "date": datetime.date.today().isoformat(),
        "machine": machine_facts(os.cpu_count() or 1) | {"load_before": load_before},
        "versions": package_versions(),
        "start_seconds": start,
        "hash_rate": READ_BYTES / hashing,
        "read_rate": READ_BYTES / reading,
        "stalls": stalls,
    }


def _seconds_of_starts(root: Path, ranks: RankServer, trials: int) -> list[float]:
    """Return the seconds from the command to the end of a run of one step, for each trial."""
    ranks(1, "tests.distributed.training_ranks:make_material", str(root), 4)
    flags = {
        "model_name_or_path": root / "config.json",
        "input_dir": root / "corpus",
        "split": "8,2,0",
        "max_seq_length": 32,
        "max_steps": 1,
        "do_eval": 0,
        "report_to": "none",
    }
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]

    def run(output: Path) -> None:
        command = ["bash", str(ROOT / "recipes" / "tiny" / "pretrain.sh"), *words, "--output_dir", str(output)]
        subprocess.run(command, check=True, capture_output=True, env=os.environ | {"PROCESSES": "1"})

    return [_seconds(run, root / f"run-{trial}") for trial in range(trials)]


def _write(file: Path) -> None:
    shape = (READ_BYTES // 4,)
    file.write_bytes(header_bytes({}, [("w", "float32", shape)]) + bytes(READ_BYTES))


def _read(file: Path) -> None:
    tensors, _ = read_header(file)
    np.array(tensors["w"].open())  # from the mapped file to memory of its own


def _seconds(work: Callable[[Path], object], path: Path) -> float:
    start = time.perf_counter()
    work(path)
    return time.perf_counter() - start


def rows(report: dict) -> list[list[str]]:
    """Return the rows of the table."""
    return [
        ["from the command to the end of a run of one step, tiny model", f"{report['start_seconds']:.1f} s"],
        ["hashing the files of a checkpoint", f"{report['hash_rate'] / 1e9:.2f} GB/s"],
        ["reading them", f"{report['read_rate'] / 1e9:.2f} GB/s"],
        *(
            [f"a save of {stall['bytes'] / 1e9:.2f} GB in the background", f"{min(stall['seconds']):.3f} s"]
            for stall in report["stalls"]
        ),
    ]


def page(report: dict) -> str:
    """Return the page of a report."""
    return f"{markdown(HEADINGS, rows(report), [1])}\n\n{conditions(report)}"


if __name__ == "__main__":
    main(sys.argv[1:])

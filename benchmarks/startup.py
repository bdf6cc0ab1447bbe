"""What a start takes, what of it grows with the ranks, and what that comes to at 4,096 ranks.

    .venv/bin/python benchmarks/startup.py            # about 2 minutes
    .venv/bin/python benchmarks/startup.py --smoke    # few ranks, once: does it run?
    .venv/bin/python benchmarks/startup.py --output benchmarks/results/startup.json
    .venv/bin/python benchmarks/startup.py --markdown    # writes benchmarks/results/startup.md

Each part is measured for 2 to 64 ranks, the shortest of some trials, and fitted by a + b n + c log2 n with no
coefficient below 0. Ranks of the roll call are sockets of this process, but for rank 0: it is measured with 4,096, too,
since each rank is sent a line for each node. Checkpoints are those that so
many ranks write, 8 parameters each with 4 states, in the directory for temporary files. A sample index is that of a
corpus of 10,000 documents for each rank. Beside them: a whole start of a tiny model on one rank, and the rate of
verifying and reading.
"""

import datetime
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # the repository, not benchmarks/

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.optimize import nnls

from benchmarks.cpu_training import machine_facts
from benchmarks.page import conditions, put, stored_parser
from data_tools.formats.tokens.samples import build_sample_index
from launch.checkpoint.checkpoint_writer import NewPart, PartialCheckpoint, json_file, safetensors_file
from launch.checkpoint.manifest import Manifest, first_fault, rank_file, read_manifest, sha256, tensor_file
from launch.checkpoint.parts import MODEL, OPTIMIZER, Part, stored_tensors
from launch.nodes.roll_call import facts
from launch.reporting.markdown import markdown
from launch.reporting.records import package_versions
from tests.nodes.mock_members import attend
from tests.ranks import RankServer

RANKS, LARGEST = (2, 4, 8, 16, 32, 64), 4096
ROLL_CALL = "roll call"
BAR = 30.0  # seconds at LARGEST ranks
TRIALS = 5
FLAGS = {f"--flag_{number}": "a value of some length" for number in range(60)}  # as many as a recipe gives
DOCUMENTS, DOCUMENT_TOKENS, SEQUENCE = 10_000, 700, 2048
PARAMETERS, STATES, ELEMENTS = 8, ("moment1", "moment2", "master_weight", "beta1_pow_acc"), 64
READ_BYTES = 1 << 29
HEADINGS = ("part", "measured", "a + b n + c log2 n", "at 4,096 ranks")
RESULTS = ROOT / "benchmarks" / "results" / "startup.json"


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = stored_parser(__doc__)
    parser.add_argument("--smoke", action="store_true", help="few ranks, once")
    arguments = parser.parse_args(argv)
    if arguments.markdown:
        put("startup", "multi-node", page(json.loads(RESULTS.read_text())))
        return 0
    report = measure(RANKS[:3] if arguments.smoke else RANKS, 1 if arguments.smoke else TRIALS)
    report |= {"command": shlex.join(["python", "benchmarks/startup.py", *argv])}
    table = Table(*HEADINGS, title="a start of many ranks")
    for row in rows(report):
        table.add_row(*row)
    Console(width=100).print(table)
    print(summary(report))
    if arguments.output:
        arguments.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if arguments.smoke or max(map(at_largest, report["seconds"].values())) <= BAR else 1


def measure(counts: tuple[int, ...], trials: int) -> dict:
    """Return "seconds" by part and number of ranks, "start_seconds" of a tiny model, "read_rate" in bytes a second."""
    load_before, seconds = os.getloadavg()[0], {}
    with tempfile.TemporaryDirectory() as directory:
        for count in track(counts, "measuring", console=Console(stderr=True)):
            for name, part in parts_of_a_start(Path(directory), count).items():
                seconds.setdefault(name, {})[str(count)] = min(part() for _ in range(trials))
        if counts == RANKS:
            seconds[ROLL_CALL][str(LARGEST)] = _seconds(attend, LARGEST, lambda _: FLAGS)
        rate = max(_read_rate(Path(directory) / "file") for _ in range(trials))
        start = min(_start_seconds(Path(directory), trials))
    return {
        "date": datetime.date.today().isoformat(),
        "machine": machine_facts(os.cpu_count() or 1) | {"load_before": load_before},
        "versions": package_versions(),
        "seconds": seconds,
        "start_seconds": start,
        "read_rate": rate,
    }


def parts_of_a_start(directory: Path, count: int) -> dict[str, Callable[[], float]]:
    """Return functions that run and measure each part for `count` ranks, in seconds of the slowest rank."""
    output = directory / f"{count}-ranks"
    checkpoint = output / "checkpoint-1"
    return {
        "versions, revision, sources of a node": partial(_seconds, facts, 8),
        ROLL_CALL: partial(_seconds, attend, count, lambda _: FLAGS),
        "sample index of the corpus": partial(_seconds, _index, count * DOCUMENTS),
        "reports of a save to its manifest": partial(_save, output, count),
        "manifest of a checkpoint": partial(_seconds, read_manifest, checkpoint),
        "its files, each rank a share": partial(_seconds, first_fault, checkpoint, True, (0, count)),
        "its tensors, from the headers": partial(_seconds, stored_tensors, checkpoint),
    }


def _seconds(work: Callable, *arguments) -> float:
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


def _index(documents: int) -> None:
    """Shuffle the documents and cut them into samples, as the first start on a corpus does, once for all ranks."""
    order = np.random.RandomState(0).permutation(np.arange(documents, dtype=np.int32))
    build_sample_index(np.full(documents, DOCUMENT_TOKENS, np.int32)[order], SEQUENCE)


def _save(output: Path, count: int) -> float:
    """Write a checkpoint of `count` ranks and return the seconds of rank 0 after all have written."""
    partials = [PartialCheckpoint(output, 1, rank, count) for rank in range(count)]
    shutil.rmtree(partials[0].final, ignore_errors=True)  # of the trial before
    partials[0].prepare()
    for rank, checkpoint in enumerate(partials):
        checkpoint.write(_files(rank, count))
    manifest = Manifest({}, global_step=1, consumed_samples=1, consumed_tokens=1, topology={"processes": count})
    return _seconds(partials[0].finish, manifest)


def _files(rank: int, count: int) -> list:
    names = [f"layers.{rank}.{number}.weight" for number in range(PARAMETERS)]
    keys = {MODEL: names, OPTIMIZER: [f"{name}/{state}" for name in names for state in STATES]}
    values, part = np.zeros(ELEMENTS, np.float32), Part((ELEMENTS,))
    return [
        *(
            safetensors_file(
                tensor_file(kind, rank, count), [NewPart(key, "float32", part, lambda: values) for key in of]
            )
            for kind, of in keys.items()
        ),
        json_file(rank_file(rank), {}),
    ]


def _read_rate(path: Path) -> float:
    """Return the bytes a second that a rank hashes and reads, from the kernel's cache."""
    if not path.exists():
        path.write_bytes(os.urandom(1 << 20) * (READ_BYTES >> 20))
    start = time.perf_counter()
    sha256(path)
    np.fromfile(path, np.uint8)
    return READ_BYTES / (time.perf_counter() - start)


def _start_seconds(directory: Path, trials: int) -> list[float]:
    """Return the seconds from the command to the end of a run of one step, for each trial."""
    ranks = RankServer()
    ranks(1, "tests.distributed.training_ranks:make_material", str(directory), 4)
    ranks.close()
    found = []
    for trial in range(trials):
        flags = {
            "model_name_or_path": directory / "config.json",
            "input_dir": directory / "corpus",
            "output_dir": directory / f"run-{trial}",
            "split": "8,2,0",
            "max_seq_length": 32,
            "max_steps": 1,
            "do_eval": 0,
            "report_to": "none",
        }
        words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
        command = ["bash", str(ROOT / "recipes" / "tiny" / "pretrain.sh"), *words]
        run = partial(subprocess.run, check=True, capture_output=True, env=os.environ | {"PROCESSES": "1"})
        found.append(_seconds(run, command))
    return found


def fit(seconds: dict[str, float]) -> np.ndarray:
    """Return (a, b, c) of a + b n + c log2 n, none below 0, with the smallest sum of squared errors."""
    counts = np.array(list(map(int, seconds)))
    return nnls(_terms(counts), np.array(list(seconds.values())))[0]


def at_largest(seconds: dict[str, float]) -> float:
    """Return the measured value, else the fit's."""
    if str(LARGEST) in seconds:
        return seconds[str(LARGEST)]
    return float((_terms(np.array([LARGEST])) @ fit(seconds))[0])


def _terms(counts: np.ndarray) -> np.ndarray:
    return np.stack([np.ones(len(counts)), counts, np.log2(counts)], axis=1)


def rows(report: dict) -> list[list[str]]:
    """Return the rows of the table."""
    found = []
    for name, seconds in report["seconds"].items():
        most, measured = list(seconds.items())[-1]
        shown = f"{measured:.2g} s" if measured >= 1 else f"{measured * 1e3:.2g} ms"
        fitted = " + ".join(f"{value * 1e3:.2g}" for value in fit(seconds)) + " ms"
        found.append(
            [
                name,
                f"{shown}, {int(most):,} ranks",
                "" if int(most) == LARGEST else fitted,
                f"{at_largest(seconds):.2g} s",
            ]
        )
    return found


def summary(report: dict) -> str:
    """Return the sentence below the table."""
    return (
        f"One rank of a tiny model: {report['start_seconds']:.1f} s from the command to the end of a run of one step; "
        f"it hashes and reads {report['read_rate'] / 1e9:.2f} GB/s. Load average of the machine before: "
        f"{report['machine']['load_before']:.1f}."
    )


def page(report: dict) -> str:
    """Return the page of a report."""
    table = markdown(HEADINGS, rows(report), range(1, len(HEADINGS)))
    return f"{table}\n\n{summary(report)}\n\n{conditions(report)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

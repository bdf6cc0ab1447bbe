"""RMSNorm on a CPU: fused_ln, torch's rms_norm, Paddle's own two, the kernel alone and memcpy.

    python benchmarks/rms_norm_cpu.py [--rounds 5] [--output benchmarks/results/rms_norm_cpu.json]
    python benchmarks/rms_norm_cpu.py --markdown    # writes benchmarks/results/rms_norm_cpu.md

float32, forward and forward + backward. Every row is a process of its own; they take turns, a fraction of a second
each, so that a change in the machine's speed meets all of them. Shown: the shortest time of all rounds, and as "torch /
fused_ln" the median over the rounds of their ratio. Measured with malloc as cpu_fast sets it (freed memory is kept)
and as it comes. Takes about three minutes. fused_ln: make custom-ops. torch: requirements/compare.txt.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # the repository, not benchmarks/

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.cpu_training import default_torch_python, machine_facts
from benchmarks.page import conditions, put, stored_parser
from benchmarks.worker import Worker
from launch.cpu.settings import this_processor
from launch.guard import guarded
from launch.reporting.markdown import markdown

RESULTS = ROOT / "benchmarks" / "results" / "rms_norm_cpu.json"
WORKER = ROOT / "benchmarks" / "rms_norm_cpu_worker.py"
SHAPES = ((4096, 4096), (2048, 512))
SECONDS = 0.1  # a turn of one row


@dataclass(frozen=True)
class NormKernel:
    """A way to compute RMSNorm.

    Attributes:
        kept_only: Too slow, or no business of malloc's, to be measured with both settings.
    """

    case: str
    framework: str
    has_backward: bool = True
    kept_only: bool = True


OURS = NormKernel("fused_ln", "paddle", kept_only=False)
TORCH = NormKernel("torch", "torch", kept_only=False)
ROWS = (
    OURS,
    TORCH,
    NormKernel("LlamaRMSNorm", "paddle"),
    NormKernel("incubate", "paddle", has_backward=False),
    NormKernel("kernel", "none"),
    NormKernel("copy", "none", has_backward=False),
)


def measure(pythons: dict[str, str], threads: int, kept: bool, rounds: int, console: Console) -> tuple[dict, dict]:
    """Return {"4096x4096 forward": {case: [seconds of each round]}}, and versions."""
    rows = [row for row in ROWS if (kept or not row.kept_only) and runs_here(row)]
    cores = set(sorted(os.sched_getaffinity(0))[:threads])
    workers: dict[str, Worker] = {}
    versions: dict[str, str] = {}
    found: dict[str, dict[str, list[float]]] = {}
    try:
        for framework in dict.fromkeys(row.framework for row in rows):
            job = {"framework": framework, "threads": threads, "keep_freed_memory": kept}
            workers[framework] = Worker(framework, pythons[framework], WORKER, job, cores)
            versions |= workers[framework].answer()
        for number in range(rounds):
            console.print(f"{threads} threads, freed memory kept: {kept}, round {number + 1} of {rounds}")
            for (tokens, hidden), backward in ((shape, way) for shape in SHAPES for way in (False, True)):
                cell = found.setdefault(cell_name(tokens, hidden, backward), {})
                for row in rows:
                    if row.has_backward or not backward:
                        question = {"rows": tokens, "hidden": hidden, "backward": backward, "seconds": SECONDS}
                        shortest = workers[row.framework].ask({"case": row.case, **question})
                        cell.setdefault(row.case, []).append(shortest)
    finally:
        for worker in workers.values():
            worker.close()
    return found, versions


def runs_here(row: NormKernel) -> bool:
    """Return whether a row's kernel runs on this processor.

    Paddle's own kernel ends its process (SIGILL) on a processor without AVX-512.
    """
    processor = this_processor()
    return row.case != "incubate" or processor is None or processor.has_avx512


def cell_name(rows: int, hidden: int, backward: bool) -> str:
    """Return the name of a cell."""
    return f"[{rows}, {hidden}] forward{' + backward' if backward else ''}"


def ratio(cell: dict[str, list[float]], case: str) -> float:
    """Return how many times as long as fused_ln a case takes: the median over the rounds."""
    return median(theirs / ours for theirs, ours in zip(cell[case], cell[OURS.case], strict=True))


def copying(cell: dict[str, list[float]]) -> float:
    """Return the rate at which the kernel moves its bytes, as a share of memcpy's."""
    return median(copy / kernel for copy, kernel in zip(cell["copy"], cell["kernel"], strict=True))


def rows(found: dict[str, dict]) -> list[list[str]]:
    """Return a line for each way, in milliseconds, and one for each comparison; a column for each cell."""
    cells = found.values()
    cases = [row.case for row in ROWS if any(row.case in cell for cell in cells)]
    lines = [[case, *(f"{1e3 * min(cell[case]):.3g}" if case in cell else "" for cell in cells)] for case in cases]
    for case in (TORCH.case, "LlamaRMSNorm"):
        if case in cases:
            lines.append([f"{case} / {OURS.case}", *(f"{ratio(cell, case):.3g} x" for cell in cells)])
    if "copy" in cases:
        lines.append(["kernel's rate of copy's", *(f"{copying(cell):.0%}" if "copy" in cell else "" for cell in cells)])
    return lines


def show(report: dict, console: Console) -> None:
    """Print the tables."""
    for title, found in report["results"].items():
        table = Table(title=title, box=box.SIMPLE)
        for column, head in enumerate(["", *found]):
            table.add_column(head, overflow="fold", justify="right" if column else "left")
        for line in rows(found):
            table.add_row(*line)
        console.print(table)


def page(report: dict) -> str:
    """Return the page of a report."""
    results = report["results"].items()
    tables = [markdown([f"{title}, ms", *found], rows(found), range(1, 1 + len(found))) for title, found in results]
    return "\n\n".join([*tables, conditions(report)])


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = stored_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--torch-python", default=default_torch_python(), help="interpreter with torch")
    args = parser.parse_args(argv)
    if args.markdown:
        return put("rms_norm_cpu", "custom-ops", page(json.loads(RESULTS.read_text())))
    pythons = {"paddle": sys.executable, "torch": args.torch_python, "none": sys.executable}
    report = {"machine": machine_facts(max(args.threads)), "versions": {}, "results": {}}
    for kept in (True, False):
        for threads in args.threads:
            found, versions = measure(pythons, threads, kept, args.rounds, Console(stderr=True))
            malloc = "malloc keeps freed memory" if kept else "malloc as it comes"
            report["results"][f"{malloc}, {threads} thread{'s' * (threads > 1)}"] = found
            report["versions"] |= versions
    show(report, Console())
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))

"""Training speed on a CPU: Paddle as it comes, with cpu_fast, with fused_ln too, and transformers on torch.

    make custom-ops
    python benchmarks/cpu_training.py [--threads 2] [--shapes 256x6 512x8] [--rounds 5] [--clock cpu] [--output FILE]
    pip install --target build/newer-torch torch==2.15.0    # its best rows, too: --newer-torch build/newer-torch
    python benchmarks/cpu_training.py --markdown    # writes benchmarks/results/cpu_training.md

The same LLaMA, with the same weights, data, optimizer (AdamW, clip 1.0) and threads, in one process a row. Rows in
bfloat16 compute products of matrices in it, as --bf16 1 and torch.autocast do. First the rows' losses are compared;
then they take turns, a few steps each, so that a change in the machine's speed meets all of them. The tokens/s shown
are medians over all timed steps; "ours is" is the median over the rounds of ours / theirs, ours being the first row of
the same precision. --clock cpu counts the seconds that the process computes, for a machine that does other work
meanwhile; threads wait busily, so take --threads 1 with it. torch.compile needs g++. Takes about twenty
minutes, half of them for stock Paddle. torch and transformers: requirements/compare.txt.
"""

import argparse
import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from importlib.metadata import distributions
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # the repository, not benchmarks/

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.page import put, stored_parser
from benchmarks.worker import Worker
from launch.cpu.settings import available_cores, this_processor
from launch.devices import fused_ln
from launch.errors import UserError
from launch.families.llama import LLAMA
from launch.guard import guarded
from launch.reporting.markdown import markdown
from launch.switches import FUSED_RMS_NORM
from launch.switches.switch import SwitchCase

RESULTS = ROOT / "benchmarks" / "results" / "cpu_training.json"
WORKER = ROOT / "benchmarks" / "cpu_training_worker.py"
BATCH, LENGTH, VOCABULARY, HEAD_DIM = 8, 256, 8000, 64
CHECKED_STEPS, TOLERANCE = 3, 5e-5
BFLOAT16_TOLERANCE = 2e-2  # to float32's; torch's logits, too, are rounded to 2^-9 of them


@dataclass(frozen=True)
class Contender:
    """One line of the table.

    Attributes:
        steps: Timed steps in one turn.
        warm_up: Untimed ones before them.
        mkl_fast: MKL takes the processor for Intel's (FAST_MKL).
        compiled: By torch.compile.
        bfloat16: Products of matrices are in bfloat16: --bf16 1, torch.autocast.
        packages: A folder of packages before those of the interpreter.
    """

    name: str
    framework: str
    cpu_fast: str = "off"
    fused: bool = False
    custom_ops: bool = False
    keep_freed_memory: bool = False
    mkl_fast: bool = False
    compiled: bool = False
    bfloat16: bool = False
    packages: str = ""
    warm_up: int = 1
    steps: int = 3


# torch's MKL asks this function whether the processor is Intel's, and takes its slower kernels where it is not.
# MKL_DEBUG_CPU_TYPE, which Paddle's older MKL heeds, it no longer knows.
FAST_MKL = "int mkl_serv_intel_cpu_true(void) { return 1; }"

STOCK = Contender("Paddle, stock", "paddle", warm_up=0, steps=1)  # up to 30 s a step
OURS = Contender("Paddle, cpu_fast, fused_ln", "paddle", cpu_fast="auto", custom_ops=True)
OURS_BFLOAT16 = replace(OURS, name=f"{OURS.name}, bfloat16", bfloat16=True)
BEST_TORCH = Contender("torch, fused, malloc, MKL", "torch", fused=True, keep_freed_memory=True, mkl_fast=True)
COMPILED = replace(BEST_TORCH, name=f"{BEST_TORCH.name}, compile", compiled=True)
ROWS = (
    OURS,
    Contender("Paddle, cpu_fast", "paddle", cpu_fast="auto"),
    Contender("torch, default", "torch"),
    replace(BEST_TORCH, name="torch, fused, malloc", mkl_fast=False),
    BEST_TORCH,
    COMPILED,
    STOCK,
    OURS_BFLOAT16,
    replace(BEST_TORCH, name=f"{BEST_TORCH.name}, bfloat16", bfloat16=True),
    replace(COMPILED, name=f"{COMPILED.name}, bfloat16", bfloat16=True),
)


class RowWorker(Worker):
    """One row's process."""

    def __init__(self, row: Contender, python: str, model: dict, weights: Path, cores: set[int], clock: str):
        self.row = row
        variables = {"LD_PRELOAD": str(fast_mkl(weights.parent))} if row.mkl_fast else {}
        if row.packages:
            variables["PYTHONPATH"] = row.packages
        job = {
            **asdict(row), "model": model, "weights": str(weights), "threads": len(cores),
            "batch": BATCH, "length": LENGTH, "checked_steps": CHECKED_STEPS, "clock": clock,
        }  # fmt: skip
        super().__init__(row.name, python, WORKER, job, cores, variables)

    def turn(self) -> list[float]:
        """Train a turn; the seconds of its timed steps."""
        return self.ask(self.row.warm_up + self.row.steps)[self.row.warm_up :]


def fast_mkl(folder: Path) -> Path:
    """Return FAST_MKL as a library in this folder, to be loaded before torch's own function of that name."""
    library = folder / "fast_mkl.so"
    subprocess.run(["g++", "-x", "c", "-shared", "-fPIC", "-o", library, "-"], input=FAST_MKL, text=True, check=True)
    return library


def measured_rows(skipped: list[str], newer_torch: Path | None) -> list[Contender]:
    """Return ROWS but those skipped, and torch's best with the packages of a folder.

    Raises:
        UserError: If there is no such row, or no torch in the folder.
    """
    names = [row.name for row in ROWS]
    for name in skipped:
        if name not in names or name in (OURS.name, OURS_BFLOAT16.name):
            raise UserError(f"--skip: found {name!r}, allowed: rows but ours: {'; '.join(names)}")
    rows = [row for row in ROWS if row.name not in skipped]
    if newer_torch is None:
        return rows
    found = [package.version for package in distributions(name="torch", path=[str(newer_torch)])]
    if not found:
        raise UserError(f"--newer-torch {newer_torch}: no torch there; pip install --target {newer_torch} torch")
    best = [row for row in rows if row.mkl_fast]
    return rows + [replace(row, name=f"{row.name} ({found[0]})", packages=str(newer_torch.resolve())) for row in best]


def model_of(shape: str) -> dict:
    """Return the configuration of "HIDDENxLAYERS", by names that both frameworks know."""
    hidden_size, layers = (int(number) for number in shape.split("x"))
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": hidden_size,
        "intermediate_size": -(-hidden_size * 8 // 3 // 16) * 16,  # LLaMA's 8/3, in whole 16s
        "num_hidden_layers": layers,
        "num_attention_heads": hidden_size // HEAD_DIM,
        "num_key_value_heads": hidden_size // HEAD_DIM,
        "max_position_embeddings": LENGTH,
        "rms_norm_eps": 1e-6,
    }


def random_weights(model: dict) -> dict[str, np.ndarray]:
    """Return weights by Hugging Face's names, [out, in], normal with standard deviation 0.02; norms are ones."""
    hidden, inner, vocabulary = model["hidden_size"], model["intermediate_size"], model["vocab_size"]
    shapes = {"model.embed_tokens.weight": (vocabulary, hidden), "lm_head.weight": (vocabulary, hidden)}
    for number in range(model["num_hidden_layers"]):
        layer = f"model.layers.{number}"
        shapes |= {f"{layer}.self_attn.{name}_proj.weight": (hidden, hidden) for name in "qkvo"}
        shapes |= {f"{layer}.mlp.{name}_proj.weight": (inner, hidden) for name in ("gate", "up")}
        shapes[f"{layer}.mlp.down_proj.weight"] = (hidden, inner)
    random = np.random.RandomState(0)
    weights = {name: random.normal(0, 0.02, shape).astype("float32") for name, shape in shapes.items()}
    norms = ["model.norm.weight"]
    for number in range(model["num_hidden_layers"]):
        norms += [f"model.layers.{number}.{name}_layernorm.weight" for name in ("input", "post_attention")]
    return weights | {name: np.ones(hidden, "float32") for name in norms}


def measure(
    shape: str,
    rows: list[Contender],
    pythons: dict[str, str],
    cores: set[int],
    rounds: int,
    clock: str,
    console: Console,
) -> dict:
    """Return all rows of one shape; "seconds" has, for each row's name, the steps of each round."""
    model = model_of(shape)
    workers: list[RowWorker] = []
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "weights.npz"
        np.savez(weights, **random_weights(model))
        try:
            ready = {}
            for row in rows:
                console.print(f"{shape}: {row.name}: first {CHECKED_STEPS} losses")
                workers.append(RowWorker(row, pythons[row.framework], model, weights, cores, clock))
                ready[row.name] = workers[-1].answer()
            seconds: dict[str, list[list[float]]] = {row.name: [] for row in rows}
            for number in range(rounds):
                console.print(f"{shape}: round {number + 1} of {rounds}")
                for worker in workers:
                    seconds[worker.row.name].append(worker.turn())
        finally:
            for worker in workers:
                worker.close()
    losses = {name: answer["losses"] for name, answer in ready.items()}
    halves = [losses[row.name] for row in rows if row.bfloat16]
    others = np.array([losses[row.name] for row in rows if not row.bfloat16])
    return {
        "model": model,
        "losses": losses,
        "difference": float(np.ptp(others, axis=0).max()),
        "bfloat16_difference": float(np.abs(np.array(halves) - others[0]).max()),
        "versions": {name: answer["versions"] for name, answer in ready.items()},
        "seconds": seconds,
    }


def tokens_per_second(result: dict, row: str) -> float:
    """Return the median tokens a second of a row."""
    return BATCH * LENGTH / median(second for turn in result["seconds"][row] for second in turn)


def ours_is(result: dict, row: str) -> float:
    """Return how many times as fast ours is: the median over the rounds, in each of which both had their turn.

    Ours is the row of ours in the same precision.
    """
    ours = OURS_BFLOAT16 if "bfloat16" in row else OURS
    rounds = zip(result["seconds"][row], result["seconds"][ours.name], strict=True)
    return median(median(theirs) / median(ours) for theirs, ours in rounds)


def head(results: dict[str, dict]) -> list[str]:
    """Return the headings of the columns."""
    return ["", *(name for shape in results for name in ("hidden {} x {}".format(*shape.split("x")), "ours is"))]


def rows(results: dict[str, dict]) -> list[list[str]]:
    """Return for each row the tokens a second of each shape, and how many times as fast ours is."""
    lines = []
    for row in next(iter(results.values()))["seconds"]:
        line = [row]
        for result in results.values():
            line += [f"{tokens_per_second(result, row):.0f}"]
            line.append("" if row in (OURS.name, OURS_BFLOAT16.name) else f"{ours_is(result, row):.2f} x")
        lines.append(line)
    return lines


def table(results: dict[str, dict]) -> Table:
    """Return the table for the terminal."""
    shown = Table(title=f"Tokens/s, micro batch {BATCH} x {LENGTH}, vocabulary {VOCABULARY}")
    for column, name in enumerate(head(results)):
        shown.add_column(name, justify="right" if column else "left")
    for line in rows(results):
        shown.add_row(*line)
    return shown


def page(report: dict) -> str:
    """Return the page of a report."""
    heads = head(report["results"])
    table = markdown(heads, rows(report["results"]), range(1, len(heads)))
    return f"{table}\n\n{conditions(report)}"


def conditions(report: dict) -> str:
    """Return where it was measured, and how far apart the rows' losses were."""
    machine = report["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    difference = max(result["difference"] for result in report["results"].values())
    halves = max(result.get("bfloat16_difference", 0) for result in report["results"].values())
    rounded = f"; in bfloat16 {halves:.1e} from float32's" if halves else ""
    return (
        f"{machine['processor']}, {machine['threads']} of {machine['cores']} cores, {machine['system']}; {versions}. "
        f"Largest difference between the rows' first {CHECKED_STEPS} losses: {difference:.1e} "
        f"(allowed {TOLERANCE:.0e}){rounded}."
    )


def notes(report: dict) -> list[str]:
    """Return the lines below the table."""
    lines = [
        conditions(report),
        "torch, fused, malloc: AdamW(fused=True), and malloc set to keep freed memory as cpu_fast sets it; MKL: with a "
        "function loaded before torch's that has its MKL take the processor for Intel's",
        report["command"],
    ]
    if report["machine"]["vendor"] == "AuthenticAMD":
        lines.append(
            "On AMD processors torch's MKL does not use its fastest kernels unless it is told so: the rows say what "
            "was measured here, not that one framework is faster than the other."
        )
    return lines


def machine_facts(threads: int) -> dict:
    """Return the facts of this machine that a report stores."""
    processor = this_processor()
    return {
        "processor": processor.name if processor else platform.processor(),
        "vendor": processor.vendor if processor else "",
        "cores": os.cpu_count(),
        "threads": threads,
        "system": f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
    }


def default_torch_python() -> str:
    """Return the interpreter that has torch by default."""
    own = ROOT / ".venv-compare" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the arguments."""
    parser = stored_parser(__doc__)
    parser.add_argument("--threads", type=int, default=2, help="threads of each row, and cores it is pinned to")
    parser.add_argument("--shapes", nargs="+", default=["256x6", "512x8"], metavar="HIDDENxLAYERS")
    parser.add_argument("--rounds", type=int, default=5, help="turns that each row gets")
    parser.add_argument("--skip", nargs="+", default=[], metavar="ROW", help="rows to leave out, such as the stock one")
    parser.add_argument("--newer-torch", type=Path, metavar="FOLDER", help="another torch, for its best rows")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="which seconds are counted")
    parser.add_argument(
        "--torch-python",
        default=default_torch_python(),
        help="interpreter with torch (default: .venv-compare, or this)",
    )
    return parser.parse_args(argv)


def main(argv: list[str]) -> None:
    """Run the command."""
    args = parse(argv)
    if args.markdown:
        return put("cpu_training", "cpu-speed", page(json.loads(RESULTS.read_text())))
    if available_cores() < args.threads:
        raise UserError(f"--threads {args.threads}: this process may use {available_cores()} cores; give fewer")
    importing = [args.torch_python, "-c", "import torch, transformers"]
    if subprocess.run(importing, capture_output=True).returncode:
        raise UserError(
            f"--torch-python {args.torch_python}: no torch and transformers there; install requirements/compare.txt"
        )
    obstacle = FUSED_RMS_NORM.obstacle(SwitchCase(LLAMA, fused_ln=fused_ln.find_build()))
    if obstacle:
        raise UserError(obstacle)
    cores = set(sorted(os.sched_getaffinity(0))[: args.threads])
    pythons = {"paddle": sys.executable, "torch": args.torch_python}
    progress = Console(stderr=True)
    measured = measured_rows(args.skip, args.newer_torch)
    results = {
        shape: measure(shape, measured, pythons, cores, args.rounds, args.clock, progress) for shape in args.shapes
    }
    versions = {}
    for row in results[args.shapes[0]]["versions"].values():
        versions = {name: version for name, version in row.items() if name != "says"} | versions
    report = {
        "command": shlex.join(["python", "benchmarks/cpu_training.py", *argv]),
        "date": datetime.date.today().isoformat(),
        "machine": machine_facts(args.threads),
        "versions": {"Python": platform.python_version(), **versions},
        "results": results,
    }
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")
    console = Console(soft_wrap=True)
    console.print(table(results))
    for line in notes(report):
        console.print(line, highlight=False)
    for shape, result in results.items():
        for key, allowed in (("difference", TOLERANCE), ("bfloat16_difference", BFLOAT16_TOLERANCE)):
            if result[key] > allowed:
                raise UserError(f"--shapes {shape}: the losses differ by {result[key]:.1e}: not the same training")


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))

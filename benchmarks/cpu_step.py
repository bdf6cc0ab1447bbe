"""Where a training step on a CPU spends its time, piece by piece, with cpu_fast and the operators of fused_ln.

    make custom-ops
    python benchmarks/cpu_step.py [--shapes 8,256,256,4,688,4096,6] [--output benchmarks/results/cpu_step.json]
    python benchmarks/cpu_step.py --peer --shapes 8,256,256,4,688,8000,6    # beside torch, in bfloat16, too
    python benchmarks/cpu_step.py --markdown    # writes benchmarks/results/cpu_step.md

A shape is batch, sequence, hidden, heads, intermediate, vocabulary, layers; by default the demo's model and that of
most rehearsals. Each piece is run forward and backward by itself, on one thread, float32; shown are the CPU seconds of
its fastest run, times how often a step has it, so that other work on the machine hardly counts. --peer adds to the
file of --output what torch needs for the same, with torch.compile where it fuses, autocast in bfloat16, and an MKL that
takes the processor for Intel's (benchmarks/cpu_training.py).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # the repository, not benchmarks/

from rich.console import Console
from rich.table import Table

from benchmarks.cpu_training import fast_mkl, machine_facts
from benchmarks.page import put, stored_parser
from launch.cpu.settings import prepare
from launch.devices import fused_ln
from launch.errors import UserError
from launch.families.llama import LLAMA
from launch.guard import guarded
from launch.reporting.markdown import markdown
from launch.reporting.quiet import import_paddle_quietly
from launch.switches import FUSED_RMS_NORM
from launch.switches.switch import SwitchCase

RESULTS = ROOT / "benchmarks" / "results" / "cpu_step.json"
SHAPES = ("8,256,256,4,688,4096,6", "1,128,64,4,176,1024,4")
RUNS = 10
EPSILON = 1e-6


@dataclass(frozen=True)
class StepShape:
    """Sizes of a step, in the order of the command line."""

    batch: int
    sequence: int
    hidden: int
    heads: int
    intermediate: int
    vocabulary: int
    layers: int

    @classmethod
    def parse(cls, text: str) -> "StepShape":
        """Return the shape of a text such as "4,128,..."."""
        return cls(*map(int, text.split(",")))

    @property
    def tokens(self) -> int:
        """Number of tokens of a batch."""
        return self.batch * self.sequence


@dataclass(frozen=True)
class StepPiece:
    """A part of a step.

    Attributes:
        call: Forward and backward once.
        count: In a step.
        flops: Of a call, 0 where they do not take the time.
    """

    name: str
    call: Callable
    count: int
    flops: int = 0


def pieces(shape: StepShape, bfloat16: bool) -> list[StepPiece]:
    """Return the parts of a step. bfloat16: as with --bf16 1."""
    import paddle
    import paddle.nn.functional as F
    from fused_ln import cpu, fused_rms_norm
    from fused_ln.cpu import causal_attention, rotary_embedding, swiglu

    from launch.cpu.bfloat16 import BFloat16Products

    def multiply(x, weight):
        return BFloat16Products(cpu).linear(x, weight) if bfloat16 else paddle.matmul(x, weight)

    tokens, hidden, inner, layers = shape.tokens, shape.hidden, shape.intermediate, shape.layers
    by_head = (shape.batch, shape.sequence, shape.heads, hidden // shape.heads)
    tables = [paddle.randn([1, shape.sequence, 1, by_head[3]]) for _ in range(2)]
    scale = by_head[3] ** -0.5
    labels = paddle.randint(0, shape.vocabulary, [tokens, 1])

    def both_ways(function: Callable, *sizes: tuple) -> Callable:
        inputs = [paddle.randn(size) for size in sizes]
        for tensor in inputs:
            tensor.stop_gradient = False
        grad = paddle.ones_like(function(*inputs))
        return lambda: paddle.grad(function(*inputs), inputs, grad_outputs=grad)

    def product(name: str, rows: int, columns: int, count: int) -> StepPiece:
        call = both_ways(multiply, (tokens, rows), (rows, columns))
        return StepPiece(f"product with {name}", call, count, 6 * tokens * rows * columns)

    numbers = hidden * (4 * hidden + 3 * inner) * layers + 2 * shape.vocabulary * hidden
    weights = paddle.create_parameter([numbers], "float32")
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=[weights], weight_decay=0.01)
    weights.sum().backward()
    return [
        product("q, k, v and o", hidden, hidden, 4 * layers),
        product("gate and up", hidden, inner, 2 * layers),
        product("down", inner, hidden, layers),
        product("the head", hidden, shape.vocabulary, 1),
        StepPiece(
            "attention",
            both_ways(lambda *heads: causal_attention(*heads, scale, bfloat16), by_head, by_head, by_head),
            layers,
            12 * tokens * shape.sequence * hidden,
        ),
        StepPiece("rotary embedding", both_ways(lambda x: rotary_embedding(x, *tables), by_head), 2 * layers),
        StepPiece("SwiGLU", both_ways(swiglu, (tokens, inner), (tokens, inner)), layers),
        StepPiece(
            "RMSNorm (fused_ln)",
            both_ways(lambda x, weight: fused_rms_norm(x, weight, EPSILON)[0], (tokens, hidden), (hidden,)),
            2 * layers + 1,
        ),
        StepPiece("residual sums", both_ways(lambda x, y: x + y, (tokens, hidden), (tokens, hidden)), 2 * layers),
        StepPiece(
            "cross entropy",
            both_ways(lambda x: F.cross_entropy(x, labels, reduction="none"), (tokens, shape.vocabulary)),
            1,
        ),
        StepPiece("AdamW", optimizer.step, 1),
    ]


def torch_pieces(shape: StepShape, bfloat16: bool) -> list[StepPiece]:
    """Return the same of torch. bfloat16: what torch.autocast computes in it."""
    import torch
    import torch.nn.functional as F
    from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

    torch.set_num_threads(1)
    dtype = torch.bfloat16 if bfloat16 else torch.float32
    tokens, hidden, inner, layers = shape.tokens, shape.hidden, shape.intermediate, shape.layers
    by_head = (shape.batch, shape.heads, shape.sequence, hidden // shape.heads)
    cos, sin = (torch.randn(1, shape.sequence, by_head[3], dtype=dtype) for _ in range(2))
    labels = torch.randint(0, shape.vocabulary, (tokens,))
    norm = LlamaRMSNorm(hidden, EPSILON)

    def both_ways(function: Callable, *sizes: tuple, dtype=torch.float32, compiled: bool = True) -> Callable:
        inputs = [torch.randn(size, dtype=dtype, requires_grad=True) for size in sizes]
        function = torch.compile(function) if compiled else function

        def call():
            with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
                result = function(*inputs)
            return torch.autograd.grad(result, inputs, torch.ones_like(result))

        return call

    def product(rows: int, columns: int) -> Callable:
        return both_ways(F.linear, (tokens, rows), (columns, rows), compiled=False)

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    weight = torch.randn(hidden * (4 * hidden + 3 * inner) * layers + 2 * shape.vocabulary * hidden, requires_grad=True)
    weight.grad = torch.ones_like(weight)
    calls = [
        product(hidden, hidden),
        product(hidden, inner),
        product(inner, hidden),
        product(hidden, shape.vocabulary),
        both_ways(attend, by_head, by_head, by_head, dtype=dtype, compiled=False),
        both_ways(lambda x: apply_rotary_pos_emb(x, x, cos, sin)[0], by_head, dtype=dtype),
        both_ways(lambda gate, up: F.silu(gate) * up, (tokens, inner), (tokens, inner), dtype=dtype),
        both_ways(norm, (tokens, hidden)),
        both_ways(lambda x, y: x + y, (tokens, hidden), (tokens, hidden)),
        both_ways(lambda x: F.cross_entropy(x, labels, reduction="none"), (tokens, shape.vocabulary), dtype=dtype),
        torch.optim.AdamW([weight], 1e-3, weight_decay=0.01, fused=True).step,
    ]
    return [StepPiece("", call, 0) for call in calls]


def cpu_seconds(call: Callable) -> float:
    """Return the least CPU seconds of a call, after a first one that is not counted."""
    call()
    times = []
    for _ in range(RUNS):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def measured(shape: StepShape, bfloat16: bool) -> list[dict]:
    """Return the parts of a step and their seconds."""
    return [
        {"name": piece.name, "count": piece.count, "flops": piece.flops, "seconds": cpu_seconds(piece.call)}
        for piece in pieces(shape, bfloat16)
    ]


def peers(text: str) -> dict[str, dict[str, float]]:
    """Return the milliseconds of all parts in a step, by framework and precision."""
    rows, halves = (measured(StepShape.parse(text), bfloat16) for bfloat16 in (False, True))
    with tempfile.TemporaryDirectory() as folder:
        seconds = {
            "ours, float32": [row["seconds"] for row in rows],
            "torch, float32": torch_seconds(text, False, Path(folder)),
            "ours, bfloat16": [row["seconds"] for row in halves],
            "torch, bfloat16": torch_seconds(text, True, Path(folder)),
        }
    return {
        name: {row["name"]: 1e3 * row["count"] * one for row, one in zip(rows, found, strict=True)}
        for name, found in seconds.items()
    }


def peer_table(report: dict) -> str:
    """Return the tables of ours beside torch."""
    tables = []
    for text, found in report.get("peers", {}).items():
        shape = StepShape.parse(text)
        columns = [column | {"together": sum(column.values())} for column in found.values()]
        lines = [[name, *(f"{column[name]:.1f}" for column in columns)] for name in columns[0]]
        title = f"hidden {shape.hidden} x {shape.layers}, {shape.batch} x {shape.sequence}, CPU milliseconds of a step:"
        tables.append(f"{title}\n\n{markdown(['', *found], lines, range(1, 1 + len(found)))}")
    return "\n\n".join(tables)


def shares(rows: list[dict]) -> list[list[str]]:
    """Return for each piece and for all together: milliseconds in a step, share of the step, GFLOP/s."""
    total = sum(row["count"] * row["seconds"] for row in rows)
    lines = []
    for row in rows:
        seconds = row["count"] * row["seconds"]
        rate = f"{row['flops'] / row['seconds'] / 1e9:.0f}" if row["flops"] else ""
        lines.append([f"{1e3 * seconds:.1f}", f"{seconds / total:.1%}", rate])
    return [*lines, [f"{1e3 * total:.1f}", "100%", ""]]


def table(title: str, rows: list[dict]) -> Table:
    """Return the table for the terminal."""
    shown = Table(title=title)
    for name in ("", "times", "ms", "of the step", "GFLOP/s"):
        shown.add_column(name, justify="right" if name else "left")
    names = [(row["name"], str(row["count"])) for row in rows]
    for name, cells in zip([*names, ("together", "")], shares(rows), strict=True):
        shown.add_row(*name, *cells)
    return shown


def page(report: dict) -> str:
    """Return the page of a report: a line a piece, three columns a shape."""
    heads, columns = [""], []
    for text, rows in report["results"].items():
        shape = StepShape.parse(text)
        heads += [f"hidden {shape.hidden} x {shape.layers}, {shape.batch} x {shape.sequence}: ms", "share", "GFLOP/s"]
        columns.append(shares(rows))
    names = [row["name"] for row in next(iter(report["results"].values()))]
    lines = [[name, *(cell for column in columns for cell in column[n])] for n, name in enumerate([*names, "together"])]
    return "\n\n".join(filter(None, [markdown(heads, lines, range(1, len(heads))), peer_table(report)]))


def torch_seconds(text: str, bfloat16: bool, folder: Path) -> list[float]:
    """Return the seconds of torch's parts, from a process with a faster MKL."""
    command = [sys.executable, "-W", "ignore", __file__, "--torch", json.dumps([text, bfloat16])]
    variables = {"LD_PRELOAD": str(fast_mkl(folder)), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=os.environ | variables, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = stored_parser(__doc__)
    parser.add_argument("--shapes", nargs="+", default=SHAPES)
    parser.add_argument("--peer", action="store_true", help="measure torch, too, and both in bfloat16")
    parser.add_argument("--torch", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.markdown:
        return put("cpu_step", "cpu-speed", page(json.loads(RESULTS.read_text())))
    if args.torch:
        text, bfloat16 = args.torch
        return print(json.dumps([cpu_seconds(one.call) for one in torch_pieces(StepShape.parse(text), bfloat16)]))
    obstacle = FUSED_RMS_NORM.obstacle(SwitchCase(LLAMA, fused_ln=fused_ln.find_build()))
    if obstacle:
        raise UserError(obstacle)
    prepare("auto", processes=10**6)  # one thread
    import_paddle_quietly()
    report = {"machine": machine_facts(1), "results": {}}
    console = Console(soft_wrap=True)
    if args.peer:
        report |= json.loads(args.output.read_text()) if args.output and args.output.exists() else {}
        report["peers"] = {text: peers(text) for text in args.shapes}
        console.print(peer_table(report), highlight=False)
        args.shapes = []
    for text in args.shapes:
        shape = StepShape.parse(text)
        rows = measured(shape, False)
        report["results"][text] = rows
        title = f"hidden {shape.hidden} x {shape.layers}, micro batch {shape.batch} x {shape.sequence}"
        console.print(table(f"{title}, CPU milliseconds, one thread", rows))
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))

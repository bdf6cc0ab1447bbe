"""Where a training step on a CPU spends its time, piece by piece, with cpu_fast and the operators of fused_ln.

    make custom-ops
    python benchmarks/cpu_step.py [--shapes 8,256,256,4,688,4096,6] [--output benchmarks/results/cpu_step.json]
    python benchmarks/cpu_step.py --markdown    # writes benchmarks/results/cpu_step.md

A shape is batch, sequence, hidden, heads, intermediate, vocabulary, layers; by default the demo's model and that of
most rehearsals. Each piece is run forward and backward by itself, on one thread, float32; shown are the CPU seconds of
its fastest run, times how often a step has it, so that other work on the machine hardly counts.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # the repository, not benchmarks/

from rich.console import Console
from rich.table import Table

from benchmarks.cpu_training import machine_facts
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


def pieces(shape: StepShape) -> list[StepPiece]:
    """Return the parts of a step."""
    import paddle
    import paddle.nn.functional as F
    from fused_ln import fused_rms_norm
    from fused_ln.cpu import causal_attention, rotary_embedding, swiglu

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
        call = both_ways(paddle.matmul, (tokens, rows), (rows, columns))
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
            both_ways(lambda *heads: causal_attention(*heads, scale), by_head, by_head, by_head),
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


def cpu_seconds(call: Callable) -> float:
    """Return the least CPU seconds of a call, after a first one that is not counted."""
    call()
    times = []
    for _ in range(RUNS):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


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
    return markdown(heads, lines, range(1, len(heads)))


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = stored_parser(__doc__)
    parser.add_argument("--shapes", nargs="+", default=SHAPES)
    args = parser.parse_args(argv)
    if args.markdown:
        return put("cpu_step", "cpu-speed", page(json.loads(RESULTS.read_text())))
    obstacle = FUSED_RMS_NORM.obstacle(SwitchCase(LLAMA, fused_ln=fused_ln.find_build()))
    if obstacle:
        raise UserError(obstacle)
    prepare("auto", processes=10**6)  # one thread
    import_paddle_quietly()
    report = {"machine": machine_facts(1), "results": {}}
    console = Console(soft_wrap=True)
    for text in args.shapes:
        shape = StepShape.parse(text)
        rows = [
            {"name": piece.name, "count": piece.count, "flops": piece.flops, "seconds": cpu_seconds(piece.call)}
            for piece in pieces(shape)
        ]
        report["results"][text] = rows
        title = f"hidden {shape.hidden} x {shape.layers}, micro batch {shape.batch} x {shape.sequence}"
        console.print(table(f"{title}, CPU milliseconds, one thread", rows))
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))

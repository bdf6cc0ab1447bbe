"""The CUDA kernels of the fused RMSNorm, run on the CPU: right in every instance, and faults in them are found."""

import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from custom_ops.fused_rms_norm.harness.cuda_on_cpu import compile_check, gcc_version

pytestmark = pytest.mark.nightly


def run(program: Path, *words: object, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Its exit status and all that it said."""
    command = [str(program), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment or {})
    return done.returncode, done.stdout + done.stderr


def test_every_kernel_is_right_in_every_instance(tmp_path):
    """Against double precision, at the lengths between which the kernel changes, rows that are no whole packs, tensors
    that are not aligned, no row, 70,000 rows. More than one pass over the rows: the pretended card is small."""
    compile_check(tmp_path / "check")
    status, said = run(tmp_path / "check")
    results = [line for line in said.splitlines() if not line.startswith("ran ")]
    assert status == 0 and all(line.startswith("right ") for line in results), said
    assert len(results) == 301
    # Pairs of dtypes times kept lengths, or packs of 16 bytes and single numbers; sum_parts knows the weight's alone.
    assert Counter(re.findall(r"ran void rms_norm::cuda::(\w+)\(", said)) == {
        "forward_kept": 30,
        "forward_reread": 10,
        "backward_kept": 35,
        "backward_dots": 10,
        "backward_tiles": 10,
        "sum_parts": 3,
    }


@dataclass(frozen=True)
class Fault:
    """`right`, where it occurs first in the kernels, becomes `wrong`, whose ON is true where the fault is switched on.
    A run with this shape then says `found`."""

    right: str
    wrong: str
    rows: int
    hidden: int
    found: str


BARRIER = "__syncthreads();"
FAULTS = {
    "a row too many": Fault("|| row < call.rows", "|| row < call.rows + ON", 2, 64, "out of bounds: byte "),
    "a pack too many": Fault(
        "pack < packs", "pack < packs + ON", 1, 1024, "out of bounds: byte 4096 of a buffer of 4096 bytes"
    ),
    "a register that is not there": Fault(
        "kept[item].values[i]", "kept[item + ON].values[i]", 1, 2048, "index 4 out of bounds for type"
    ),
    "a register that nobody wrote": Fault("kept[item] =", "if (!ON) kept[item] =", 1, 64, "WRONG float32-float32"),
    "a sum replaced while it is read": Fault(
        f"{BARRIER}  // the last", f"if (!ON) {BARRIER}  // the last", 301, 1024,
        "shared memory is written with no barrier after another's read",
    ),
    "a sum read while it is written": Fault(
        f"{BARRIER}\n    value", f"if (!ON) {BARRIER}\n    value", 1, 1024, "shared memory is read "
    ),
    "parts added while they are written": Fault(
        f"{BARRIER}\n  const float total", f"if (!ON) {BARRIER}\n  const float total", 2, 64, "shared memory is read "
    ),
    "rows of a block added while they are written": Fault(
        f"{BARRIER}\n    for (int column", f"if (!ON) {BARRIER}\n    for (int column", 2, 256, "shared memory is read "
    ),
    "a next row that is not there": Fault(
        "packs_of(row + step)", "ON ? packs : packs_of(row + step)", 2, 1024, "out of bounds: byte "
    ),
    "a barrier that some threads miss": Fault(
        "value = 0;", f"value = 0; if (ON && threadIdx.x % 32) {BARRIER}", 1, 1024,
        "this thread waits for ever at the barrier of line ",
    ),
    "a shuffle that some threads miss": Fault(
        "float sum = 0;", "float sum = 0; if (ON && threadIdx.x > 20) return;", 1, 128,
        "this thread waits for ever at the shuffle of line ",
    ),
    "a sum of half a warp": Fault("/ 2 : 16", "/ 2 : ON ? 8 : 16", 3, 128, "WRONG float32-float32 [3, 128]: y "),
    "one part for several blocks": Fault(
        "parts + blockIdx.x", "parts + (ON ? 0 : blockIdx.x)", 37, 64, "weight_grad nan"
    ),
    "rows left out": Fault("row += step", "row += step * (1 + ON)", 301, 64, "x_grad nan"),
    "tiles without an end": Fault("if (pack >=", "if (!ON && pack >=", 2, 1025, "out of bounds: byte "),
    "columns without an end": Fault(
        "if (column < hidden", "if (ON || column < hidden", 2, 1025, "out of bounds: byte "
    ),
    "a block too few": Fault(
        "grid(divide_up(call.rows,",
        "grid((call.rows + (ON ? 0 : Shape::block().y - 1)) / Shape::block().y); (void)dim3(divide_up(call.rows,",
        9, 64, "y nan",
    ),
    "rows along y": Fault(
        "<<<call.rows, kRereadThreads, 0, on",
        "<<<dim3(ON ? 1 : call.rows, ON ? call.rows : 1), kRereadThreads, 0, on", 70000, 1,
        "no card accepts the grid (1, 70000, 1)",
    ),
    "rows that are not aligned": Fault("aligned = hidden", "aligned = ON || hidden", 2, 1023, "misaligned address"),
    "more threads than the kernel is for": Fault(
        "<<<grid, Shape::block(),", "<<<grid, ON ? dim3(256) : Shape::block(),", 1, 1024,
        "the block has 256 threads, __launch_bounds__ 128",
    ),
    "too little scratch memory": Fault(
        "call.hidden + call.rows", "call.hidden + (ON ? 0 : call.rows)", 5, 1023, "out of bounds: byte "
    ),
    "the default stream": Fault(
        "dim3(32, 32), 0, on", "dim3(32, 32), 0, ON ? nullptr : on", 2, 64, "a kernel is started on the default stream"
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def faulty(tmp_path_factory) -> Path:
    """The kernels with all faults, of which the variable FAULT switches one on: compiled once."""
    left = dict(enumerate(FAULTS.values()))

    def change(source: str) -> str:
        for number, fault in list(left.items()):
            if fault.right in source:
                source = source.replace(fault.right, fault.wrong.replace("ON", f"(fault == {number})"), 1)
                del left[number]
        chosen = 'static const int fault = std::getenv("FAULT") ? std::atoi(std::getenv("FAULT")) : -1;'
        return source.replace("__device__ inline float to_float", f"{chosen}\n__device__ inline float to_float", 1)

    program = tmp_path_factory.mktemp("faulty") / "check"
    compile_check(program, change)
    assert not left, "not in the kernels any more"
    return program


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(faulty, name):
    if name == "a register that nobody wrote" and gcc_version() < 12:
        pytest.skip("this gcc leaves in it what was there")
    fault = FAULTS[name]
    number = str(list(FAULTS).index(name))
    status, said = run(faulty, fault.rows, fault.hidden, environment={"FAULT": number})
    assert status == 1 and fault.found in said, said


def test_without_a_fault_the_same_program_is_right(faulty):
    for hidden in (64, 128, 1023, 1024, 1025, 2048):
        status, said = run(faulty, 37, hidden)
        assert status == 0, said

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
    assert len(results) == 241
    # Pairs of dtypes times kept lengths, or packs of 16 bytes and single numbers; sum_parts knows the weight's alone.
    assert Counter(re.findall(r"ran void rms_norm::cuda::(\w+)\(", said)) == {
        "forward_kept": 25,
        "forward_reread": 10,
        "backward_kept": 15,
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
    "a pack too many": Fault(
        "pack < packs", "pack < packs + ON", 1, 1024, "out of bounds: byte 4096 of a buffer of 4096 bytes"
    ),
    "a register that nobody wrote": Fault("kept[item] =", "if (!ON) kept[item] =", 1, 64, "WRONG float32-float32"),
    "a sum read while it is written": Fault(
        f"{BARRIER}\n    value", f"if (!ON) {BARRIER}\n    value", 1, 1024, "shared memory is read "
    ),
    "a barrier that some threads miss": Fault(
        "value = 0;", f"value = 0; if (ON && threadIdx.x % 32) {BARRIER}", 1, 1024,
        "this thread waits for ever at the barrier of line ",
    ),
    "a shuffle that some threads miss": Fault(
        "float sum = 0;", "float sum = 0; if (ON && threadIdx.x > 20) return;", 1, 64,
        "this thread waits for ever at the shuffle of line ",
    ),
    "a sum of half a warp": Fault("step = 16", "step = ON ? 8 : 16", 3, 128, "WRONG float32-float32 [3, 128]: y "),
    "rows that are not aligned": Fault("aligned = hidden", "aligned = ON || hidden", 2, 1023, "misaligned address"),
    "the default stream": Fault(
        "dim3(32, 8), 0, on", "dim3(32, 8), 0, ON ? nullptr : on", 2, 64, "a kernel is started on the default stream"
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

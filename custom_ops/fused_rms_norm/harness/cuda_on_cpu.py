"""Compiles CUDA sources with g++ to a program that runs them on the CPU (cuda_on_cpu.h): no nvcc, no card.

    python custom_ops/fused_rms_norm/harness/cuda_on_cpu.py build/check && build/check

Four things g++ cannot parse are rewritten; the rest is compiled as nvcc would see it.
"""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HARNESS = Path(__file__).resolve().parent
CSRC = HARNESS.parent / "csrc"
SOURCES = (CSRC / "rms_norm.h", CSRC / "rms_norm_cuda.h", CSRC / "rms_norm_cuda.cuh", CSRC / "rms_norm_cuda.cu")
# UBSan's: indices of the arrays that a thread keeps in registers, loads that are not aligned to their type, overflow of
# signed numbers.
SANITIZE = "-fsanitize=bounds,alignment,shift,signed-integer-overflow,integer-divide-by-zero,float-cast-overflow"
# -ffp-contract=off: the same numbers on every CPU. -U_FORTIFY_SOURCE: it takes a jump between two stacks for an error.
FLAGS = (
    "-std=c++17 -O2 -Wall -Wno-unknown-pragmas -ffp-contract=off -U_FORTIFY_SOURCE "
    f"{SANITIZE} -fno-sanitize-recover=all"
)
# A variable that nothing was written to holds a pattern, as a float -1.7e38. Since GCC 12.
PATTERN = "-ftrivial-auto-var-init=pattern"

REWRITTEN = (
    (r"#include <cuda_\w+\.h>", '#include "cuda_on_cpu.h"'),
    # kernel<T><<<grid, block, shared, stream>>>(arguments);
    (r"(\w+(?:<[^<>;]*>)?)<<<([^;]*?)>>>\(([^;]*)\);", r"cuda_on_cpu::launch([=] { \1(\3); }, \2);"),
    (r"__shared__ (\w+) (\w+)((?:\[[^\]]*\])+);", r"static cuda_on_cpu::Shared<\1\3> \2;"),
    (
        r"__global__ void __launch_bounds__\((.*)\) (\w+\(.*\)) \{",
        r"__global__ void \2 { cuda_on_cpu::enter(__PRETTY_FUNCTION__, \1);",
    ),
)


def rewrite(source: str) -> str:
    """Return CUDA's own syntax as C++, on the same lines."""
    for pattern, replacement in REWRITTEN:
        source = re.sub(pattern, replacement, source)
    return source


def gcc_version() -> int:
    """Return the major version of g++."""
    said = subprocess.run(["g++", "-dumpversion"], check=True, capture_output=True, text=True).stdout
    return int(said.split(".")[0])


def compile_check(program: Path, change: Callable[[str], str] = lambda source: source) -> None:
    """Make check.cu and the kernels one program. `change` is applied to each source of the kernels first."""
    folder = program.with_name(f"{program.name}-sources")
    (folder / "csrc").mkdir(parents=True, exist_ok=True)
    (folder / "harness").mkdir(exist_ok=True)
    for source in SOURCES:
        (folder / "csrc" / source.name).write_text(rewrite(change(source.read_text())))
    (folder / "harness" / "check.cu").write_text(rewrite((HARNESS / "check.cu").read_text()))
    files = [folder / "harness" / "check.cu", folder / "csrc" / "rms_norm_cuda.cu"]
    flags = [*FLAGS.split(), *([PATTERN] if gcc_version() >= 12 else [])]
    command = ["g++", *flags, f"-I{HARNESS}", "-x", "c++", *map(str, files), "-o", str(program)]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    compile_check(Path(sys.argv[1]).resolve())

"""The rate of this machine's matrix product, which `make setup` or `make doctor` measures once for plans of runs on it.

It is kept in .venv/matmul.json with the processor's name and the number of cores, and counts for them alone. The
variable LAUNCH_MATMUL names another file; where it is empty, nothing is measured or read.
"""

import json
import os
import platform
import subprocess
import time
from pathlib import Path

from launch.cpu.settings import available_cores, prepare, this_processor

VARIABLE, FILE = "LAUNCH_MATMUL", Path(__file__).resolve().parents[2] / ".venv" / "matmul.json"
SIDE, REPETITIONS = 1024, 40
SECONDS = 120  # most that the measurement may take, with the import of Paddle
PLAUSIBLE = (1e9, 1e15)  # FLOP/s


def measured_flops() -> float | None:
    """Return FLOP/s of all cores together in float32; None where they were not measured on this processor."""
    try:
        content = json.loads(_file().read_text())
        flops = float(content["flops"])
        return flops if content["machine"] == _machine() and PLAUSIBLE[0] < flops < PLAUSIBLE[1] else None
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return None


def measure(python: Path) -> float | None:
    """Measure in a process of an interpreter that has Paddle, unless that was done, and return as measured_flops."""
    if os.environ.get(VARIABLE) != "" and measured_flops() is None:
        command = [str(python), "-W", "ignore", "-c", "from launch.cpu.matmul import _measure_here; _measure_here()"]
        folder = FILE.parents[1]
        try:
            subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return None
    return measured_flops()


def _measure_here() -> None:
    prepare("auto", processes=1)
    import paddle

    paddle.set_device("cpu")  # a build for cards would measure one, which does not even wait for the product
    matrix, best = paddle.ones([SIDE, SIDE]), float("inf")
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        paddle.matmul(matrix, matrix)
        best = min(best, time.perf_counter() - start)
    partial = _file().with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps({"machine": _machine(), "flops": 2 * SIDE**3 / best}) + "\n")
    partial.replace(_file())


def _file() -> Path:
    return Path(os.environ.get(VARIABLE, FILE))


def _machine() -> str:
    processor = this_processor()
    return f"{processor.name if processor else platform.machine()}, {available_cores()} cores"

"""How long the tests take, how large they are, and how fast this machine is.

    python benchmarks/suite.py                          # run make test's tests and print all
    python benchmarks/suite.py test test-long           # those tiers
    python benchmarks/suite.py test-nightly --slice 3   # one slice
    python benchmarks/suite.py --rate                   # only this machine's rate
    python benchmarks/suite.py --stored                 # only what is stored, and the size

The reference machine has a matmul rate of 1.0: a machine of half the rate may take twice as long. --store keeps the
seconds of each file in benchmarks/results/suite.json, from which tests/tiers.py divides the nightly tier into slices
and orders files.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # the repository, not benchmarks/

from launch.cpu.settings import available_cores, this_processor
from launch.guard import guarded
from tests.tiers import EXPRESSIONS, STORED, WORKERS, divide, file_seconds, nightly_files

REFERENCE_GFLOPS = 60.0  # of 2 cores, as `make test` has them; an AMD EPYC of 2023 with the kernels MKL takes there
SHAPE = (2048, 512, 2048)
LIMITS = {"test": 300, "test-long": 1500, "test-nightly": 480}  # seconds on the reference machine; nightly: a slice
LARGEST_SIZE = 38_000  # lines of tests/**/*.py
MATMUL = f"""
import time, paddle
a, b = paddle.randn([{SHAPE[0]}, {SHAPE[1]}]), paddle.randn([{SHAPE[1]}, {SHAPE[2]}])
best = 1e9
for _ in range(60):
    start = time.perf_counter()
    paddle.matmul(a, b).numpy()
    best = min(best, time.perf_counter() - start)
print(2 * {SHAPE[0]} * {SHAPE[1]} * {SHAPE[2]} / best / 1e9)
"""


def measured_gflops() -> float:
    """Return the best rate of a float32 matmul of Paddle on two cores, in GFLOP/s."""
    environment = os.environ | {"OMP_NUM_THREADS": str(min(2, available_cores()))}
    command = [sys.executable, "-W", "ignore", "-c", MATMUL]
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def run_tier(tier: str, nightly_slice: str | None) -> dict:
    """Run the tests of a tier; return its wall seconds, tests, failures and the seconds of each file."""
    seconds = file_seconds(tier)
    files = divide(nightly_files(), seconds)[int(nightly_slice) - 1] if nightly_slice else ["tests"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-m", EXPRESSIONS[tier], "-n", str(WORKERS)]
        command += ["--dist", "loadfile", "--no-loadscope-reorder", f"--junitxml={report}", *files]
        started = time.monotonic()
        subprocess.run(command, cwd=ROOT)
        took = time.monotonic() - started
        cases = [*ElementTree.parse(report).iter("testcase")]
    files_took: Counter[str] = Counter()
    for case in cases:
        files_took[_file_of(case.get("classname", ""))] += float(case.get("time", 0))
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    kept = {file: round(taken, 1) for file, taken in sorted(files_took.items())}
    return {"seconds": round(took), "tests": len(cases), "failed": failed, "files": kept}


def _file_of(class_name: str) -> str:
    """Return the path of tests.plan.test_time.TestClass, as a report names it."""
    parts = class_name.split(".")
    while parts and not ROOT.joinpath(*parts).with_suffix(".py").is_file():
        parts.pop()
    return "/".join(parts) + ".py"


def size() -> int:
    """Return the number of lines of the tests."""
    return sum(len(file.read_text().splitlines()) for file in ROOT.glob("tests/**/*.py"))


def show(tier: str, result: dict, rate: float) -> None:
    """Print a tier's result against its limit."""
    limit = LIMITS[tier] / min(1.0, rate)
    verdict = "met" if result["seconds"] <= limit and not result.get("failed") else "MISSED"
    print(
        f"{tier:<13} {result['tests']:>6,} tests  {result.get('failed', 0)} failed  {result['seconds']:>6,} s"
        f"  of {limit:,.0f} s: {verdict}"
    )


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tiers", nargs="*", default=["test"], help=", ".join(EXPRESSIONS))
    parser.add_argument("--slice", help="of the nightly tier")
    parser.add_argument("--rate", action="store_true", help="print this machine's rate alone")
    parser.add_argument("--stored", action="store_true", help="print stored results, run nothing")
    parser.add_argument("--store", action="store_true", help=f"keep the results in {STORED.relative_to(ROOT)}")
    args = parser.parse_args(argv)
    if unknown := set(args.tiers) - EXPRESSIONS.keys():
        parser.error(f"{', '.join(sorted(unknown))}: expected {', '.join(EXPRESSIONS)}")
    stored = json.loads(STORED.read_text())
    if args.stored:
        print(f"machine: {stored['machine']}")
        for tier, result in stored["tiers"].items():
            show(tier, result, stored["rate"])
    else:
        rate = measured_gflops() / REFERENCE_GFLOPS
        processor = this_processor()
        name = processor.name if processor else platform.machine()
        machine = f"{available_cores()} cores of {name}, Python {platform.python_version()}"
        print(f"machine: {machine}\nmatmul rate: {rate:.2f} of the reference's {REFERENCE_GFLOPS:g} GFLOP/s")
        if args.rate:
            return
        for tier in args.tiers:
            result = run_tier(tier, args.slice)
            show(tier, result, rate)
            if args.store:
                before = stored["tiers"].get(tier, {}).get("files", {}) if args.slice else {}
                stored["tiers"][tier] = result | {"files": before | result["files"]}
                stored |= {"machine": machine, "rate": round(rate, 2)}
                STORED.write_text(json.dumps(stored, indent=1) + "\n")
    lines = size()
    print(f"size: {lines:,} lines in tests/, of {LARGEST_SIZE:,}: {'met' if lines <= LARGEST_SIZE else 'MISSED'}")


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))

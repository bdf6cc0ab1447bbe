"""Peak memory of data_tools.tokenize as its input grows: the largest must stay within 100 MB of the smallest.

    python benchmarks/tokenizing_memory.py [--megabytes 100 4000] [--workers 2] [--output FILE]

The text of tokenizing.py, again and again, comes through stdin; the peak is that of all processes together, each page
shared among them counted once (PSS), looked at ten times a second.
"""

import argparse
import datetime
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # the repository, not benchmarks/

import contextlib

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.cpu_training import machine_facts
from benchmarks.tokenizing import make_tokenizers, write_text
from launch.errors import UserError
from launch.guard import guarded

ALLOWED_MB = 100
TEXT_MB = 8
SECONDS_BETWEEN_LOOKS = 0.1


def peak_memory(text: bytes, megabytes: int, tokenizer: Path, output: Path, workers: int) -> int:
    """Return the bytes at the peak of tokenizing `megabytes` MB of this text."""
    command = [sys.executable, "-m", "data_tools.tokenize", "--input", "-", "--tokenizer", tokenizer]
    command += ["--output", output, "--workers", str(workers)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    feeder = threading.Thread(target=feed, args=(process.stdin, text, megabytes))
    feeder.start()
    peak = 0
    while process.poll() is None:
        peak = max(peak, memory_of(process.pid))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_BETWEEN_LOOKS)
    feeder.join()
    if process.returncode:
        raise UserError(f"{shlex.join(map(str, command))} failed, see above")
    return peak


def feed(stdin, text: bytes, megabytes: int) -> None:
    """Write the text to stdin until it has the size."""
    with stdin:
        for _ in range(max(1, round(megabytes * 1e6 / len(text)))):
            stdin.write(text)


def memory_of(pid: int) -> int:
    """Return the PSS of a process and its children, in bytes; 0 when it is just ending."""
    try:
        process = psutil.Process(pid)
        return sum(member.memory_full_info().pss for member in [process, *process.children(recursive=True)])
    except psutil.Error:
        return 0


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--megabytes", nargs="+", type=int, default=[100, 4000], help="sizes of the input")
    parser.add_argument("--workers", type=int, default=2, help="processes that encode")
    parser.add_argument("--output", type=Path, help="also write everything measured to this JSON file")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder / "text.jsonl", TEXT_MB)
        text = (folder / "text.jsonl").read_bytes()
        tokenizer = make_tokenizers(folder / "text.jsonl", folder)["sentencepiece"]
        peaks = {}
        for megabytes in args.megabytes:
            output = folder / f"corpus{megabytes}"
            peaks[megabytes] = peak_memory(text, megabytes, tokenizer, output, args.workers)
            os.remove(f"{output}.bin")
    report = {
        "command": shlex.join(["python", "benchmarks/tokenizing_memory.py", *argv]),
        "date": datetime.date.today().isoformat(),
        "machine": machine_facts(args.workers),
        "workers": args.workers,
        "peak_bytes": peaks,
    }
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")
    shown = Table("input MB", "peak MB, all processes", title=f"Memory of tokenize, {args.workers} workers")
    for megabytes, peak in peaks.items():
        shown.add_row(f"{megabytes:,}", f"{peak / 1e6:.1f}")
    Console().print(shown)
    growth = (peaks[max(peaks)] - peaks[min(peaks)]) / 1e6
    if growth > ALLOWED_MB:
        raise UserError(f"the peak grows by {growth:.0f} MB, allowed {ALLOWED_MB}")


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))

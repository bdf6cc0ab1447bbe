"""run_summary.json: what was run, on what, and how it ended."""

import importlib.metadata
import json
import math
import os
import platform
import subprocess
import sys
from pathlib import Path

from launch.reporting.records import RUN_SUMMARY

REPORTED_PACKAGES = ["paddlepaddle", "paddlepaddle-gpu", "paddlenlp", "visualdl", "numpy", "sentencepiece"]


def package_versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that decide the result."""
    versions = {"python": platform.python_version()}
    for name in REPORTED_PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def git_revision() -> str | None:
    """The commit of this repository with "-dirty" when files differ from it; None outside a checkout."""
    root = Path(__file__).resolve().parent.parent
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def topology(training_args) -> dict[str, int]:
    """How the processes are divided."""
    return {
        "processes": max(training_args.world_size, 1),
        "data_parallel_degree": max(training_args.data_parallel_degree, 1),
        "sharding_parallel_degree": max(training_args.sharding_parallel_degree, 1),
        "tensor_parallel_degree": max(training_args.tensor_parallel_degree, 1),
        "pipeline_parallel_degree": max(training_args.pipeline_parallel_degree, 1),
    }


def write_summary(output_dir: str, summary: dict) -> None:
    """Write run_summary.json aside and rename it: it is whole or not there."""
    path = Path(output_dir) / RUN_SUMMARY
    temporary = path.with_suffix(f".tmp-{os.getpid()}")
    temporary.write_text(json.dumps(_without_infinities(summary), indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def _without_infinities(value):
    """JSON has no NaN and no infinity: null stands for them."""
    if isinstance(value, dict):
        return {key: _without_infinities(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_infinities(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def plain(values: dict) -> dict:
    """What JSON can hold of argument values."""
    simple = (str, int, float, bool, type(None))
    return {
        key: value if isinstance(value, simple) else str(value)
        for key, value in sorted(values.items())
        if not key.startswith("_")
    }


def command_line() -> list[str]:
    return [sys.executable, *sys.argv]

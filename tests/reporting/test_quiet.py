"""The import of Paddle is not torn by Ctrl-C; known noise is filtered, and every other warning is shown."""

import os
import signal
import subprocess
import sys

import pytest

from launch.reporting.quiet import interrupts_held
from tests.recipes.machine import ROOT

# Stands for Paddle, with its habits: it writes to stderr, warns, and changes filters and levels while it is imported.
PADDLE = """
import logging, sys, warnings
warnings.simplefilter("always", category=Warning)
logging.getLogger().setLevel(logging.INFO)
print("WARNING: OMP_NUM_THREADS set to 2, not 1. The computation speed will not be optimized.", file=sys.stderr)
print("PLEASE USE OMP_NUM_THREADS WISELY.", file=sys.stderr)
print("a new line of the import", file=sys.stderr)
warnings.warn("No ccache found. Please be aware")
warnings.warn("a new warning of the import")
warnings.warn("for developers", DeprecationWarning)
"""
SAID = """
import logging, sys, warnings
from launch.reporting.quiet import import_paddle_quietly
import_paddle_quietly()
logging.basicConfig(stream=sys.stderr, format="%(message)s")
for name in ("PaddleNLP", "root", "another.library"):
    logging.getLogger(name).info("progress")
    logging.getLogger(name).warning(f"a new message of {name}")
logging.getLogger("PaddleNLP").warning("Reset tensor_parallel_degree of the adapter")
warnings.warn("amp_guard can only be enabled on CUDAPlace, XPUPlace, and CustomPlace")
warnings.warn("Current global rank 3 is not in group _default_pg11")
warnings.warn("\\033[93m\\nWarning:\\nAPI \\"paddle.incubate.nn.functional.swiglu.swiglu\\" is deprecated since 3.3.0")
for _ in range(2):
    warnings.warn("a new warning of a library")
"""


def test_known_noise_is_filtered_and_all_else_is_shown(tmp_path):
    (tmp_path / "paddle.py").write_text(PADDLE)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    done = subprocess.run(
        [sys.executable, "-c", SAID],
        env=environment | {"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert [line.strip() for line in done.stderr.splitlines()] == [
        "a new line of the import",
        f"{tmp_path}/paddle.py:9: UserWarning: a new warning of the import",
        'warnings.warn("a new warning of the import")',
        "a new message of PaddleNLP",
        "a new message of root",
        "a new message of another.library",
        "<string>:14: UserWarning: a new warning of a library",
    ]


def test_ctrl_c_takes_effect_at_the_end(ctrl_c):
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        signal.raise_signal(signal.SIGINT)
        done.append("the rest")
    assert done == ["the rest"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_fails_because_of_it_is_it(ctrl_c):
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        signal.raise_signal(signal.SIGINT)
        int("")


def test_other_errors_are_raised():
    with pytest.raises(ValueError, match="invalid literal"), interrupts_held():
        int("")

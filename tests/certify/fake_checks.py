"""Checks that end in every way, for the tests of the plugin: test_certificate.py runs them."""

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from launch.certify.bench import ROOT, CheckFailed, LoggedStep, tiny_pretraining
from tests.card.full_size import test_recipe as measure_recipe
from tests.card.tiny_model import compare_steps


def card(limit: float = 60, **more):
    return pytest.mark.card(seconds=1, pretended=1, limit=limit, expected="all well", at_fault="it is at fault", **more)


@card()
def test_passes(bench):
    bench.row("sum", "4", "4", 2 + 2 == 4, value=4)


@card()
def test_fails(bench):
    bench.row("sum", "5", "4", 2 + 2 == 5)
    bench.row("difference", "0", "0", True)


@card()
def test_cannot_be_shown(bench):
    bench.needs_cards(3)


@card()
def test_crashes(bench):
    bench.row("before", "this", "this", True)
    os.kill(os.getpid(), signal.SIGKILL)


@card(limit=10)
def test_hangs(bench):
    bench.row("before", "this", "this", True)
    time.sleep(600)


@card()
def test_leaves_a_process(bench):
    """In a session of its own, as a launcher; it ends 1 s later, or in an hour where there is a file `stays`."""
    seconds = 3600 if (bench.directory.parent / "stays").exists() else 1
    process = subprocess.Popen(["sleep", str(seconds)], start_new_session=True)
    (bench.directory.parent / "pid").write_text(str(process.pid))
    test_crashes(bench)


@card()
def test_is_alone(bench):
    left = psutil.pid_exists(int((bench.directory.parent / "pid").read_text()))
    bench.row("process of the check before", "gone", "there" if left else "gone", not left)


@card()
def test_names_paths(bench):
    """In a row, and in the end of a run's log, long enough to be cut."""
    log = bench.directory / "run" / "log" / "workerlog.0"
    log.parent.mkdir(parents=True)
    log.write_text(f"no {' '.join([str(ROOT / 'launch')] * 20)}\n")
    bench.row("file", "any", f"{bench.directory / 'a'}, {ROOT}-2, {ROOT}: {Path.home()}", False)
    raise CheckFailed(f"{bench.directory} {bench.log_end('run')}")


@card()
def test_raises(bench):
    raise ValueError("no kernel image for this card")


@card()
def test_needs_a_run(bench):
    raise CheckFailed("stage2 ended with exit code 137: killed")


@card()
def test_loses_its_numbers(bench):
    """A run whose second step is no number, after one that is right."""
    right = [LoggedStep(6.9, 0.8), LoggedStep(6.8, 0.7)]
    for what, wrong in (
        ("loss", LoggedStep(math.nan, 0.7)),
        ("norm", LoggedStep(6.8, math.nan)),
        ("none", LoggedStep(6.8, 0.7)),
    ):
        compare_steps(bench, what, "one card", right, [right[0], wrong], 1e-4)


@card()
def test_counts(bench):
    """Notes beside its folder how often it has run."""
    with open(bench.directory.parent / "runs", "a") as file:
        file.write("x")
    test_passes(bench)


@card()
def test_is_interrupted(bench):
    os.kill(psutil.Process(os.getppid()).ppid(), signal.SIGINT)  # the plugin's, above the one that waits for this
    time.sleep(600)


@card()
def test_trains_on_a_card(bench):
    """Paddle is a stand-in there, which cannot be imported."""
    bench.train("two-cards", tiny_pretraining(bench.materials, 1), 2)


@card()
def test_measures_a_recipe(bench):
    """On the cards of a stand-in for NVML."""
    sys.path.insert(0, os.environ["PYTHONPATH"])
    sys.modules.pop("pynvml", None)
    measure_recipe(bench, "lora-1gpu")


@card(cards=4)
def test_measures_one_that_does_not_fit(bench):
    sys.path.insert(0, os.environ["PYTHONPATH"])
    sys.modules.pop("pynvml", None)
    measure_recipe(bench, "finetune-llama7b")


@card()
def test_has_a_card(bench):
    _meets(bench, "a", "b")


@card()
def test_meets_the_other(bench):
    _meets(bench, "b", "a")


def _meets(bench, mine, others):
    """Ends once the other check runs, too."""
    folder = bench.directory.parent
    (folder / mine).touch()
    bench.row("card", "one", os.environ["CUDA_VISIBLE_DEVICES"], bench.cards == 1)
    deadline = time.monotonic() + 30
    while not (folder / others).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    here = (folder / others).exists()
    bench.row("other", "here", "the other is here" if here else "it did not come", here)
    (folder / f"{mine}-ended").touch()


@card(alone=True)
def test_takes_all(bench):
    bench.row("cards", "both", os.environ["CUDA_VISIBLE_DEVICES"], bench.cards == 2)
    left = [name for name in "ab" if not (bench.directory.parent / f"{name}-ended").exists()]
    bench.row("others", "none", ",".join(left) or "nobody else", not left)

"""A run that does not move any more ends, and tells where its ranks were; so does one that lost a rank."""

import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from launch.checkpoint.manifest import checkpoints, first_fault
from launch.processes.logs import HUNG, KILLED, print_failure
from launch.watch import FIRST_STEPS, HangTimer
from tests.training.run_ranks import make_corpus
from tests.training.test_run_pretrain import argv

ROOT = Path(__file__).resolve().parents[2]
STALL = "tests.watch.faulty_ranks:stall"


def test_the_limit_is_a_multiple_of_the_median_step(monkeypatch):
    now = iter([0.0, 10.0, 20.0, 30.0, 130.0, 140.0])  # steps of 10 s, one of 100 s
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    timer = HangTimer(factor=20, seconds=60)
    limits = []
    for _ in range(6):
        timer.step_done()
        limits.append(timer.limit)
    assert limits == [FIRST_STEPS * 60] * 3 + [200.0] * 3
    assert HangTimer(factor=20, seconds=300).limit == 1800


def test_a_step_with_something_beside_it_is_not_measured(monkeypatch):
    now = iter([0.0, 10.0, 20.0, 30.0, 1000.0, 1010.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    timer = HangTimer(factor=1, seconds=1)
    for _ in range(4):
        timer.step_done()
    with timer.beside_steps():
        pass
    timer.step_done()  # a thousand seconds later
    timer.step_done()
    assert list(timer._steps) == [10.0] * 4


def run(source: str) -> subprocess.CompletedProcess:
    head = "import time\nfrom launch.watch import HangTimer\n"
    command = [sys.executable, "-c", head + textwrap.dedent(source)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_a_process_that_hangs_writes_its_stacks_and_ends():
    done = run("""
        def stuck():
            time.sleep(60)

        HangTimer(1, 0.05, seconds_to_write=0.2).start()
        stuck()
    """)
    assert 128 - done.returncode == HUNG
    assert "Timeout (" in done.stderr and re.search(r"line \d+ in stuck", done.stderr)


@pytest.mark.parametrize(
    "usual",
    [
        "for _ in range(9):\n    time.sleep(0.1); timer.moved()",
        "with timer.beside_steps():\n    for _ in range(9):\n        time.sleep(0.1); timer.moved()",
        "timer.stop()\nwith timer.beside_steps():\n    pass\ntime.sleep(0.8)",
        "timer.stop(); time.sleep(0.8)",
        "timer.stop(); timer.moved(); time.sleep(0.8)",
        "timer.stop(); timer = HangTimer(0, 0.01, seconds_to_write=0); timer.start(); time.sleep(0.8)",
    ],
)
def test_a_process_that_moves_is_left_alone(usual):
    done = run("timer = HangTimer(1, 0.1, seconds_to_write=0)\ntimer.start()\n" + usual)  # a limit of 0.6 s
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("data") / "corpus"
    make_corpus(str(prefix), vocab_size=1024, largest_id=1023)
    return prefix


def stalled(ranks, corpus, tmp_path, how: str, **changes):
    flags = {"do_eval": 0, "max_steps": 40, "logging_steps": 1, "report_to": "none", "save_steps": 2} | changes
    flags = argv(corpus, tmp_path / "out", **flags)
    return ranks.outcome(2, STALL, flags, 6, 1, how, directory=tmp_path / "log", time_limit=60)


def test_every_rank_of_a_hung_run_shows_where_it_is(ranks, corpus, tmp_path, capsys):
    outcome = stalled(ranks, corpus, tmp_path, "sleeps", save_steps=1000, hang_factor=3, hang_seconds=2)
    assert outcome.exit_code == HUNG
    print_failure(outcome.failed_rank, outcome.exit_code, tmp_path / "log")
    told = capsys.readouterr().err
    assert "the run made no step any more (--hang_factor, --hang_seconds). Where the ranks were:" in told
    first, second = re.findall(r"^  rank \d: .*$", told, flags=re.MULTILINE)
    assert second.startswith("  rank 1: in compute_loss (watch/faulty_ranks.py:")
    assert first.startswith("  rank 0: in ") and "compute_loss" not in first and ", called by " in first


@pytest.mark.long
def test_a_save_that_hangs_ends_the_run_and_leaves_the_checkpoint_before(ranks, corpus, tmp_path, capsys):
    outcome = stalled(ranks, corpus, tmp_path, "saves", hang_factor=3, hang_seconds=2)
    assert outcome.exit_code == HUNG
    print_failure(outcome.failed_rank, outcome.exit_code, tmp_path / "log")
    told = capsys.readouterr().err
    first, second = re.findall(r"^  rank \d: .*$", told, flags=re.MULTILINE)
    assert "; its save is in write_hashed (watch/faulty_ranks.py:" in second
    assert "; its save is in _report_of (checkpoint/checkpoint_writer.py:" in first  # waits for rank 1
    newest = checkpoints(tmp_path / "out")[0]
    assert newest.name == "checkpoint-4" and first_fault(newest) is None


@pytest.mark.long
def test_a_save_that_takes_long_but_goes_on_is_left_alone(ranks, corpus, tmp_path):
    started = time.monotonic()
    outcome = stalled(ranks, corpus, tmp_path, "saves slowly", hang_factor=3, hang_seconds=2, max_steps=7)
    assert outcome.exit_code == 0 and time.monotonic() - started > 2 * 2
    assert first_fault(tmp_path / "out" / "checkpoint-6") is None


def test_a_rank_killed_alone_ends_the_others_and_is_named(ranks, corpus, tmp_path, capsys):
    started = time.monotonic()
    outcome = stalled(ranks, corpus, tmp_path, "killed")
    assert time.monotonic() - started < 30
    assert (outcome.exit_code, outcome.failed_rank) == (KILLED, 1)
    print_failure(outcome.failed_rank, outcome.exit_code, tmp_path / "log")
    told = capsys.readouterr().err
    assert "rank 1 failed with exit code 137" in told and "it was killed from outside" in told

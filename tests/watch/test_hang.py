"""A run that does not move any more ends, and tells where its ranks were; so does one that lost a rank."""

import re
import subprocess
import sys
import time

import pytest

from launch import watch
from launch.checkpoint.manifest import checkpoints, first_fault
from launch.processes.logs import HUNG, KILLED, log_path, print_failure
from launch.watch import FIRST_STEPS, HangTimer
from tests.distributed.layouts import DP2
from tests.runs import as_words
from tests.store import ROOT

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


HANGS = """
import time
from launch.watch import HangTimer

def stuck():
    time.sleep(60)

HangTimer(1, 0.05, seconds_to_write=0.2).start()
stuck()
"""


def test_a_process_that_hangs_writes_its_stacks_and_ends():
    done = subprocess.run([sys.executable, "-c", HANGS], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert 128 - done.returncode == HUNG
    assert "Timeout (" in done.stderr and re.search(r"line \d+ in stuck", done.stderr)


def test_each_move_sets_the_timer_anew(monkeypatch):
    armed = []
    monkeypatch.setattr(watch.faulthandler, "dump_traceback_later", lambda limit, file: armed.append(limit))
    monkeypatch.setattr(watch.faulthandler, "cancel_dump_traceback_later", armed.clear)
    monkeypatch.setattr(watch.signal, "setitimer", lambda which, seconds: None)
    timer = HangTimer(1, 0.1)
    timer.start()
    timer.moved()
    with timer.beside_steps():
        timer.moved()
    limit = FIRST_STEPS * 0.1
    assert armed == [limit] * 5  # at the start, both moves, the beginning and the end of what was beside
    timer.stop()
    timer.moved()
    assert armed == []
    with timer.beside_steps():
        assert armed == [limit]
    assert armed == []
    HangTimer(0, 0.01).start()
    assert armed == []


@pytest.fixture
def stalled(ranks, runs, tmp_path):
    """stalled("saves", ...): how two ranks ended, the second of which does so from step 6 on."""

    def run(how: str, **changes):
        flags = {"do_eval": 0, "max_steps": 40, "save_steps": 2, "output_dir": tmp_path / "out"} | changes
        words = as_words(runs.words("pretraining", DP2, **flags))
        return ranks.outcome(2, STALL, words, 6, 1, how, directory=tmp_path / "log", time_limit=60)

    return run


@pytest.mark.long
def test_every_rank_of_a_hung_run_shows_where_it_is(stalled, tmp_path, capsys):
    outcome = stalled("sleeps", save_steps=1000, hang_factor=3, hang_seconds=2)
    assert outcome.exit_code == HUNG
    print_failure(outcome.failed_rank, outcome.exit_code, tmp_path / "log")
    told = capsys.readouterr().err
    assert "the run made no step any more (--hang_factor, --hang_seconds). Where the ranks were:" in told
    first, second = re.findall(r"^  rank \d: .*$", told, flags=re.MULTILINE)
    assert second.startswith("  rank 1: in compute_loss (watch/faulty_ranks.py:")
    assert first.startswith("  rank 0: in ") and "compute_loss" not in first and ", called by " in first


@pytest.mark.long
def test_a_trial_before_the_first_step_that_hangs_ends_the_run(stalled, tmp_path):
    outcome = stalled("tries", hang_factor=3, hang_seconds=0.5)
    assert outcome.exit_code == HUNG
    assert re.search(
        r"decisions.py\", line \d+ in decide", log_path(tmp_path / "log", 0).read_text()
    )  # waits for rank 1


@pytest.mark.long
def test_a_save_that_hangs_ends_the_run_and_leaves_the_checkpoint_before(stalled, tmp_path, capsys):
    outcome = stalled("saves", hang_factor=3, hang_seconds=2)
    assert outcome.exit_code == HUNG
    print_failure(outcome.failed_rank, outcome.exit_code, tmp_path / "log")
    told = capsys.readouterr().err
    first, second = re.findall(r"^  rank \d: .*$", told, flags=re.MULTILINE)
    assert "; its save is in write_hashed (watch/faulty_ranks.py:" in second
    assert "; its save is in _report_of (checkpoint/checkpoint_writer.py:" in first  # waits for rank 1
    newest = checkpoints(tmp_path / "out")[0]
    assert newest.name == "checkpoint-4" and first_fault(newest) is None


@pytest.mark.nightly
def test_a_save_that_takes_long_but_goes_on_is_left_alone(stalled, tmp_path):
    started = time.monotonic()
    outcome = stalled("saves slowly", hang_factor=3, hang_seconds=2, max_steps=7)
    assert outcome.exit_code == 0 and time.monotonic() - started > 2 * 2
    assert first_fault(tmp_path / "out" / "checkpoint-6") is None


@pytest.mark.long
def test_a_rank_killed_alone_ends_the_others_and_is_named(stalled, tmp_path, capsys):
    started = time.monotonic()
    outcome = stalled("killed")
    assert time.monotonic() - started < 30
    assert (outcome.exit_code, outcome.failed_rank) == (KILLED, 1)
    print_failure(outcome.failed_rank, outcome.exit_code, tmp_path / "log")
    told = capsys.readouterr().err
    assert "rank 1 failed with exit code 137" in told and "it was killed from outside" in told

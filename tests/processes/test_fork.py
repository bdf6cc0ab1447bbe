"""run_ranks without Paddle: exit codes, the rank that failed first, signals, nothing left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

from launch.errors import UserError
from launch.processes.fork import TIMED_OUT, run_ranks
from launch.processes.logs import last_lines, log_path
from tests.processes.waiting import gone, wait_for


def sleep(rank):
    time.sleep(600)


def test_ranks_get_the_launchers_environment_and_ours(tmp_path):
    def show(rank):
        names = ["PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_DISTRI_BACKEND", "COLOUR"]
        print(*[os.environ[name] for name in names], len(os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")))

    outcome = run_ranks(3, show, tmp_path, environment={"COLOUR": "blue"})
    assert (outcome.exit_codes, outcome.exit_code, outcome.failed_rank) == ((0, 0, 0), 0, None)
    logs = [last_lines(log_path(tmp_path, rank)) for rank in range(3)]
    assert logs == ["0 3 gloo blue 3", "1 3 gloo blue 3", "2 3 gloo blue 3"]
    assert "PADDLE_TRAINER_ID" not in os.environ


def test_failed_rank_stops_the_others(tmp_path):
    def fail_on_rank_two(rank):
        if rank == 2:
            raise ValueError("the cause")
        time.sleep(600)

    outcome = run_ranks(3, fail_on_rank_two, tmp_path)
    assert (outcome.exit_codes, outcome.exit_code, outcome.failed_rank) == ((143, 143, 1), 1, 2)
    assert last_lines(log_path(tmp_path, 2)).endswith("ValueError: the cause")


def test_cause_is_told_from_its_consequences(tmp_path):
    """Rank 2 fails, and the others on the lost connection before anybody looks."""

    def fail(rank):
        if rank == 2:  # the last one to be started
            os.kill(os.getppid(), signal.SIGSTOP)  # nobody looks
        else:
            wait_for(lambda: "ValueError" in last_lines(log_path(tmp_path, 2)))
            time.sleep(0.05)  # more than the resolution of a file's time
        raise ValueError(f"rank {rank}")

    parent = os.fork()
    if parent == 0:
        outcome = run_ranks(3, fail, tmp_path)
        os._exit(outcome.failed_rank)
    wait_for(lambda: all("ValueError" in last_lines(log_path(tmp_path, rank), 1) for rank in range(3)))
    os.kill(parent, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(os.waitpid(parent, 0)[1]) == 2


def refuse():
    raise UserError("--input_dir: not there")


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        (refuse, 2, "error: --input_dir: not there"),
        (lambda: sys.exit(3), 3, ""),
        (lambda: sys.exit("no data"), 1, "no data"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), 137, ""),
    ],
)
def test_exit_code_of_a_rank(tmp_path, end, code, said):
    outcome = run_ranks(1, lambda rank: end(), tmp_path)
    assert (outcome.exit_code, outcome.failed_rank) == (code, 0)
    assert last_lines(log_path(tmp_path, 0)) == said


def test_a_rank_that_is_told_to_end_while_it_starts_ends(tmp_path, monkeypatch):
    setpgid = os.setpgid

    def slow(*group):
        setpgid(*group)
        time.sleep(0.5)

    monkeypatch.setattr(os, "setpgid", slow)
    outcome = run_ranks(2, sleep, tmp_path, time_limit=0.1)
    assert (outcome.exit_codes, outcome.exit_code, outcome.failed_rank) == ((143, 143), TIMED_OUT, None)


def test_rank_that_ignores_sigterm_is_killed(tmp_path):
    def ignore(rank):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if rank == 0:
            time.sleep(0.2)  # the other ignores it by then
            raise ValueError
        time.sleep(600)

    assert run_ranks(2, ignore, tmp_path, grace=0.1).exit_codes == (1, 137)


def test_processes_of_a_rank_end_with_it(tmp_path):
    def leave_a_child(rank):
        child = subprocess.Popen(["sleep", "600"])
        (tmp_path / "child").write_text(str(child.pid))

    assert run_ranks(1, leave_a_child, tmp_path).exit_code == 0
    wait_for(lambda: gone(int((tmp_path / "child").read_text())))


def test_tee_shows_rank_zero_alone(tmp_path, capsys):
    assert run_ranks(2, lambda rank: print(f"I am rank {rank}"), tmp_path, tee=True).exit_code == 0
    assert capsys.readouterr().out == "I am rank 0\n"


SCRIPT = """
    import os, signal, sys, time
    from launch.processes.fork import run_ranks

    def life(rank):
        if sys.argv[2] == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        open(f"{sys.argv[1]}/pid.{rank}", "w").write(str(os.getpid()))
        time.sleep(600)

    sys.exit(run_ranks(3, life, sys.argv[1], grace=0.2).exit_code)
"""


@pytest.mark.parametrize(
    ("number", "code", "ranks_are"),
    [
        (signal.SIGINT, 130, "obedient"),
        (signal.SIGTERM, 143, "stubborn"),
        (signal.SIGKILL, -9, "stubborn"),
    ],
)
def test_signal_to_the_parent_ends_every_rank(tmp_path, number, code, ranks_are):
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path), ranks_are])
    files = [tmp_path / f"pid.{rank}" for rank in range(3)]
    wait_for(lambda: all(file.exists() and file.read_text() for file in files))
    ranks = [psutil.Process(int(file.read_text())) for file in files]
    parent.send_signal(number)
    assert parent.wait(timeout=60) == code
    wait_for(lambda: all(gone(rank.pid) for rank in ranks))

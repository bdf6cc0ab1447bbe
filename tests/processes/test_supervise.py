"""supervise: what the terminal shows, exit codes, signals, and that no process is left behind.

With a launcher that behaves as Paddle's; tests/processes/test_real_launcher.py holds Paddle's own to it.
"""

import io
import json
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from launch.processes import logs, supervise
from launch.processes.logs import Follower
from tests.processes.waiting import gone, wait_for

FAKE = [sys.executable, str(Path(__file__).with_name("fake_launcher.py"))]
ROOT = Path(__file__).resolve().parents[2]

WORKER = """\
import os, resource, signal, sys, time
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no file of each rank that ends by a signal
rank = int(os.environ["PADDLE_TRAINER_ID"])
"""

SUPERVISE = """
    import json, sys
    from launch.processes.supervise import supervise
    sys.exit(supervise(json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]), grace=float(sys.argv[4])))
"""


def start(tmp_path, worker: str, *, n=3, grace=20, launcher=FAKE) -> subprocess.Popen:
    """A process that supervises a launcher of n ranks; worker: source of the training script."""
    script = tmp_path / "worker.py"
    script.write_text(WORKER + textwrap.dedent(worker))
    log_dir = str(tmp_path / "log")
    command = [*launcher, "--nproc_per_node", str(n), "--log_dir", log_dir, str(script)]
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SUPERVISE), json.dumps(command), log_dir, str(n), str(grace)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


WRITE_PID_AND_SLEEP = """
    open(f"{os.path.dirname(__file__)}/pid.{rank}", "w").write(f"{os.getpid()} {os.getppid()}")
    time.sleep(600)
"""


def pids(tmp_path, n=3) -> tuple[list[int], int]:
    """The ranks' and the launcher's, once all ranks have told them."""
    files = [tmp_path / f"pid.{rank}" for rank in range(n)]
    wait_for(lambda: all(file.exists() and file.read_text() for file in files))
    told = [[int(word) for word in file.read_text().split()] for file in files]
    return [pid for pid, _ in told], told[0][1]


def test_shows_rank_zero_alone(tmp_path):
    process = start(tmp_path, "print('I am rank', rank)")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "I am rank 0\n", "")
    assert "fake launcher" in (tmp_path / "log" / "launcher.log").read_text()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_every_process(tmp_path, number, code):
    process = start(tmp_path, WRITE_PID_AND_SLEEP)
    ranks, launcher = pids(tmp_path)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert err == f"\nstopped by {signal.Signals(number).name}; the logs of all ranks: {tmp_path / 'log'}\n"
    assert all(gone(pid) for pid in [*ranks, launcher])


def test_ranks_save_and_end_when_nobody_reads_the_output_any_more(tmp_path):
    """`make X | tee log`, and tee is killed."""
    process = start(
        tmp_path,
        """
        signal.signal(signal.SIGTERM, lambda *_: (open(f"{os.path.dirname(__file__)}/saved.{rank}", "w"), sys.exit(0)))
        open(f"{os.path.dirname(__file__)}/pid.{rank}", "w").write(f"{os.getpid()} {os.getppid()}")
        while True:
            time.sleep(0.1)
            print("step", flush=True)
        """,
    )
    ranks, launcher = pids(tmp_path)
    process.stdout.close()
    process.wait(timeout=60)
    assert len(list(tmp_path.glob("saved.*"))) == 3
    assert all(gone(pid) for pid in [*ranks, launcher])


SAVE_SLOWLY = """
    def save(number, frame):
        open(f"{os.path.dirname(__file__)}/told.{rank}", "w").close()
        time.sleep(SECONDS)
        os._exit(0)
    signal.signal(signal.SIGINT, save)
    signal.signal(signal.SIGTERM, save)
"""


def test_signals_that_come_together_are_one(tmp_path):
    """make passes SIGTERM on to its command, and a scheduler sends it to all processes of a job."""
    process = start(tmp_path, SAVE_SLOWLY.replace("SECONDS", "1") + WRITE_PID_AND_SLEEP)
    pids(tmp_path)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_second_signal_later_kills(tmp_path):
    process = start(tmp_path, SAVE_SLOWLY.replace("SECONDS", "600") + WRITE_PID_AND_SLEEP)
    pids(tmp_path)
    process.send_signal(signal.SIGTERM)
    wait_for(lambda: len(list(tmp_path.glob("told.*"))) == 3)
    time.sleep(supervise.SECONDS_APART)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143


CHILD = '''
import os, signal, sys, time
sys.path.insert(0, {root!r})
from launch.processes.orphans import run_child
child = """\\
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path("saved").touch(), sys.exit(0)))
pathlib.Path("here").touch()
time.sleep(600)
"""
sys.exit(run_child([sys.executable, "-c", child]))
'''


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)])
def test_the_step_of_a_demo_ends_with_the_demo(tmp_path, number, code):
    process = subprocess.Popen([sys.executable, "-c", CHILD.format(root=str(ROOT))], cwd=tmp_path)
    wait_for((tmp_path / "here").exists)
    process.send_signal(number)
    assert process.wait(timeout=60) == code
    wait_for((tmp_path / "saved").exists)


def test_ranks_that_ignore_signals_are_killed(tmp_path):
    process = start(tmp_path, "    signal.signal(signal.SIGTERM, signal.SIG_IGN)" + WRITE_PID_AND_SLEEP, grace=0.2)
    ranks, launcher = pids(tmp_path)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert all(gone(pid) for pid in [*ranks, launcher])


def test_an_error_that_all_ranks_tell_is_shown_once(tmp_path):
    process = start(
        tmp_path,
        """
        time.sleep(0.3 * rank)
        print("error: no data", flush=True)
        time.sleep(600 * (rank == 0))  # it has not ended yet when rank 1 has
        sys.exit(2)
        """,
        n=2,
    )
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2 and (out + err).count("error: no data") == 1


@pytest.mark.parametrize(
    ("number", "reason", "last"),
    [
        (signal.SIGKILL, "it was killed from outside: ", ""),
        (signal.SIGBUS, "it ended with SIGBUS: most often /dev/shm is full", "step 20"),
    ],
)
def test_what_ended_a_rank_by_a_signal_comes_before_what_it_logged_last(tmp_path, number, reason, last):
    process = start(
        tmp_path,
        f"""
        print("{last}", flush=True)
        if rank == 1:
            os.kill(os.getpid(), {int(number)})
        time.sleep(600)
        """,
    )
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    first, second, *quoted = err.strip().splitlines()
    assert first == f"rank 1 failed with exit code {128 + number}; its log is {tmp_path}/log/workerlog.1"
    assert second.startswith(reason)
    assert quoted == (["the end of its log:", last] if last else [])


def test_cause_is_told_from_its_consequences(tmp_path):
    """Rank 2 fails, then rank 0 on the lost connection, which the launcher reports; rank 1 is stopped."""
    process = start(
        tmp_path,
        """
        print("before", flush=True)
        if rank == 1:
            time.sleep(600)
        cause = os.path.dirname(__file__) + "/log/workerlog.2"
        while rank == 0 and not (os.path.exists(cause) and "MemoryError" in open(cause).read()):
            time.sleep(0.01)
        time.sleep(0.05)  # more than the resolution of a file's time
        raise MemoryError if rank == 2 else ConnectionError
        """,
    )
    out, err = process.communicate(timeout=60)
    assert "rank 2 failed" in err and err.endswith("\nMemoryError\n")
    assert out == "before\n", "the consequence is in rank 0's log"


def test_the_traceback_of_rank_zero_is_shown_where_it_is_the_cause(tmp_path):
    process = start(tmp_path, "print('before', flush=True)\nif rank == 0: raise MemoryError\ntime.sleep(600)", n=2)
    out, err = process.communicate(timeout=60)
    assert re.fullmatch(r"before\nTraceback \(most recent call last\).*\nMemoryError\n", out, re.DOTALL)
    assert err == f"\nrank 0 failed with exit code 1; its log is {tmp_path}/log/workerlog.0\n"


def test_a_traceback_that_a_run_survives_is_shown(tmp_path, monkeypatch):
    log, stream = tmp_path / "log", io.StringIO()
    follower = Follower(log, stream)
    log.write_text("before\nTraceback (most recent call last): one\n")
    follower.copy()
    assert stream.getvalue() == "before\n"
    monkeypatch.setattr(logs, "SECONDS_KEPT", -1)
    log.write_text(log.read_text() + "after\n")
    follower.copy()
    assert stream.getvalue() == log.read_text()


def test_launcher_that_cannot_start_is_quoted(tmp_path):
    process = start(tmp_path, "", launcher=[sys.executable, "-c", "import no_such_module"])
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the launcher failed" in err and "No module named 'no_such_module'" in err


def test_logs_of_earlier_runs_are_kept(tmp_path):
    for number in (1, 2, 3):
        supervise._put_aside(tmp_path / "log")
        (tmp_path / "log").mkdir()
        (tmp_path / "log" / "of").write_text(str(number))
    assert [(tmp_path / name / "of").read_text() for name in ("log.1", "log.2", "log")] == ["1", "2", "3"]

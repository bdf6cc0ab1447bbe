"""Paddle's own launcher under supervise: the lines it logs are those we read, and its ranks end with it."""

import os
import signal
import subprocess
import sys

import pytest

from tests.processes.test_supervise import ROOT, WRITE_PID_AND_SLEEP, pids, start
from tests.processes.waiting import gone, wait_for

PADDLE = [sys.executable, "-W", "ignore", "-m", "paddle.distributed.launch"]


def test_failing_rank_is_quoted_and_its_code_returned(tmp_path):
    worker = """
        print("all is well")
        if rank == 1:
            print("CUDA out of memory")
            sys.exit(7)
        time.sleep(600)
    """
    process = start(tmp_path, worker, launcher=PADDLE)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 7
    first, *quoted = err.strip().splitlines()
    assert first == f"rank 1 failed with exit code 7; its log is {tmp_path}/log/workerlog.1"
    assert quoted == ["the end of its log:", "all is well", "CUDA out of memory"]


@pytest.mark.long
def test_signal_ends_every_process(tmp_path):
    process = start(tmp_path, WRITE_PID_AND_SLEEP, launcher=PADDLE)
    ranks, launcher = pids(tmp_path)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert all(gone(pid) for pid in [*ranks, launcher])


def test_killed_launcher_leaves_no_rank(tmp_path):
    process = start(tmp_path, WRITE_PID_AND_SLEEP, launcher=PADDLE, grace=1)
    ranks, launcher = pids(tmp_path)
    subprocess.run(["kill", "-9", str(launcher)], check=True)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 137
    assert "the launcher failed (SIGKILL; its ranks got the signal to save and end)" in err
    assert all(gone(pid) for pid in ranks)


def test_rank_dies_with_a_launcher_that_nobody_supervises(tmp_path):
    """As typed by hand: the rank itself has asked for it."""
    (tmp_path / "worker.py").write_text(
        "import os, time\n"
        "from launch.processes.orphans import die_with_parent\n"
        "die_with_parent()\n"
        "rank = os.environ['PADDLE_TRAINER_ID']\n" + WRITE_PID_AND_SLEEP.replace("\n    ", "\n")
    )
    log_dir = str(tmp_path / "log")
    command = [*PADDLE, "--nproc_per_node", "2", "--log_dir", log_dir, str(tmp_path / "worker.py")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    launcher = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ranks, _ = pids(tmp_path, n=2)
    launcher.kill()
    launcher.wait()
    wait_for(lambda: all(gone(pid) for pid in ranks))

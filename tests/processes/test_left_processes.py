"""What a session of tests has left behind is found, and nothing else."""

import os
import signal
import subprocess

from tests import left_processes
from tests.processes.waiting import wait_for


def test_what_runs_on_is_found_until_it_has_ended(monkeypatch, tmp_path):
    """Also where its parent has ended, and it has a session of its own. What another session started is not."""
    monkeypatch.setattr(left_processes, "GRACE_SECONDS", 0.0)
    monkeypatch.setenv(left_processes.MARK, "")
    left_processes.mark_session()
    command = ["bash", "-c", "setsid sleep 300 > /dev/null 2>&1 & echo $!"]
    pid = int(subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout)
    other = subprocess.Popen(["sleep", "300"], env=os.environ | {left_processes.MARK: "another"})
    try:
        told = [f"{pid} in {tmp_path}: sleep 300"]  # once setsid has become sleep
        wait_for(lambda: [left_processes.describe(one) for one in left_processes.left_processes()] == told)
        os.kill(pid, signal.SIGKILL)
        monkeypatch.setattr(left_processes, "GRACE_SECONDS", 10.0)
        assert left_processes.left_processes() == []
    finally:
        other.kill()
        other.wait(60)

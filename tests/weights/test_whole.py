"""A directory that a killed process left unfinished is removed by the next that writes the same one."""

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launch.errors import UserError
from launch.weights.whole import written_whole
from tests.store import ROOT

KILLED = """
import os, sys
from pathlib import Path
from launch.weights.whole import written_whole
with written_whole(Path(sys.argv[1])) as directory:
    (directory / "model.safetensors").write_text("half")
    os.kill(os.getpid(), int(sys.argv[2]))
"""


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_a_kill_left_goes_and_what_lives_or_is_anothers_stays(tmp_path):
    target = tmp_path / "merged [1]"
    (tmp_path / f".{target.name}.unfinished-notes").mkdir()
    killed = subprocess.run([sys.executable, "-c", KILLED, str(target), str(int(signal.SIGKILL))], cwd=ROOT)
    assert killed.returncode == -signal.SIGKILL and len(names(tmp_path)) == 2
    with written_whole(target) as first:
        assert names(tmp_path) == sorted([first.name, f".{target.name}.unfinished-notes"])
        with pytest.raises(KeyboardInterrupt), written_whole(target) as second:
            assert first.exists() and second != first
            raise KeyboardInterrupt
        (first / "model.safetensors").write_text("whole")
    assert names(tmp_path) == [f".{target.name}.unfinished-notes", target.name]
    assert (target / "model.safetensors").read_text() == "whole" and os.access(target, os.R_OK)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("76800 requested and 14144 written"), "no room left (76800 requested and 14144 written)"),
        (FileNotFoundError(2, "No such file", "/nobody/.cache"), "No such file: /nobody/.cache"),
        (OSError(errno.ENOTEMPTY, "Directory not empty"), "another command has written it meanwhile"),
    ],
)
def test_why_a_directory_cannot_be_written_is_said(tmp_path, error, said):
    with pytest.raises(UserError, match=re.escape(said)), written_whole(tmp_path / "merged"):
        raise error
    assert names(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_asks_a_process_to_end_leaves_nothing(tmp_path, number):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "merged"), str(int(number))]
    killed = subprocess.run(command, cwd=ROOT, preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))  # or of nohup
    assert (killed.returncode, names(tmp_path)) == (128 + number, [])

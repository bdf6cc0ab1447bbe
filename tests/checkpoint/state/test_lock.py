"""Two runs pointed at one output directory: the second is refused, while the first lives."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launch.checkpoint.state.lock import lock_output
from launch.errors import UserError

ROOT = Path(__file__).resolve().parents[3]


def test_the_second_is_refused_as_long_as_the_first_lives(tmp_path):
    code = f"from launch.checkpoint.state.lock import lock_output; lock_output({str(tmp_path)!r}); print(1); input()"
    first = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert first.stdout.readline() == "1\n"
    with pytest.raises(UserError, match=rf"in use by another run \(process {first.pid} on "):
        lock_output(tmp_path)
    first.kill()
    first.communicate()
    os.close(lock_output(tmp_path))

"""Fixtures for tests of the module fused_ln: it is built into a folder of the tests, not into this Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ranks import RankServer

SOURCE = Path(__file__).resolve().parents[2] / "custom_ops" / "fused_rms_norm"


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """A folder with nothing but fused_ln, for PYTHONPATH. Half a minute where build/ has no objects of before."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-W", "ignore", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-build-isolation", "--no-deps", "--target", str(folder), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="session")
def fused_ranks(site):
    """As `ranks` (tests/conftest.py), with fused_ln."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep))
        server = RankServer()
        server(1, "tests.custom_ops.op_ranks:where")  # starts it, with this environment
    yield server
    server.close()

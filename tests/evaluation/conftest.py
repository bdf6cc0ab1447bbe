"""lm-eval, for the tests that need it."""

import fcntl

import pytest

from launch.environment.optional_packages import require
from launch.errors import UserError
from tests.store import ROOT


@pytest.fixture(scope="session")
def lm_eval():
    """Install requirements/evaluate.lock, as the first `make evaluate` does; skip where that cannot be."""
    (ROOT / "build").mkdir(exist_ok=True)
    with open(ROOT / "build" / "lm-eval.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one worker at a time
        try:
            require("lm-eval", "evaluate.lock")
        except UserError as error:
            pytest.skip(f"requirements/evaluate.lock is not installed and cannot be: {error}")

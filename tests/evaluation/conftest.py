"""lm-eval, for the tests that need it."""

import pytest

from launch.environment.optional_packages import require
from launch.errors import UserError
from tests.store import kept


@pytest.fixture(scope="session")
def lm_eval():
    """Install requirements/evaluate.lock, as the first `make evaluate` does; skip where that cannot be."""
    try:
        kept("lm-eval", lambda folder: require("lm-eval", "evaluate.lock"))  # one worker at a time
    except UserError as error:
        pytest.skip(f"requirements/evaluate.lock is not installed and cannot be: {error}")

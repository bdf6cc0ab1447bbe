"""Material for all tests of serving."""

from pathlib import Path

import pytest

from tests.store import kept


@pytest.fixture(scope="session")
def served(ranks) -> Path:
    """The folder of a model, a LoRA and a prefix (tests/serving/material.py), to read alone."""
    return kept("material/served", lambda folder: ranks(1, "tests.serving.material:make_served", str(folder)))[0]

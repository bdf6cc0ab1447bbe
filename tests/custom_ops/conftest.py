"""Fixtures for tests of the module fused_ln: it is built into a folder of the tests, not into this Python."""

import os
from pathlib import Path

import pytest

from tests.custom_ops.kernels import install_into
from tests.ranks import RankServer


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """See install_into()."""
    folder = tmp_path_factory.mktemp("site")
    install_into(folder)
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

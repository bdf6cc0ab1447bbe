"""Each correction has a test that fails without it, and upstream still needs all of them."""

import re

import pytest

from tests.upstream.without import FAILED, ROOT, TESTS, copy_of_repository, run_without

MEANS = {"__init__", "module_view", "token_loss"}  # of corrections, none themselves


def test_every_correction_has_its_test():
    corrections = {file.stem for file in (ROOT / "launch" / "upstream").glob("*.py")} - MEANS
    assert TESTS.keys() == corrections
    for test in TESTS.values():
        file, _, function = re.sub(r"\[.*", "", test).partition("::")
        assert f"def {function}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), test


@pytest.fixture(scope="module")
def repository():
    with copy_of_repository() as repository:
        yield repository


@pytest.mark.long
@pytest.mark.parametrize("name", TESTS)
def test_fails_without(repository, name):
    done = run_without(name, repository)
    assert done.returncode == FAILED, done.stdout[-3000:] + done.stderr[-2000:]

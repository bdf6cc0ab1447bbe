"""Each correction has a test that fails without it, and upstream still needs all of them.

Those whose test is of this folder are tried here. The others' tests train models of all families, minutes in all:
`python -m tests.upstream.without` tries every one (CONTRIBUTING.md).
"""

import re

import pytest

from tests.upstream.without import FAILED, ROOT, TESTS, runner

MEANS = {"__init__", "module_view", "token_loss", "auxiliary_loss"}  # of corrections, none themselves


def test_every_correction_has_its_test():
    corrections = {file.stem for file in (ROOT / "launch" / "upstream").glob("*.py")} - MEANS
    assert TESTS.keys() == corrections
    for test in TESTS.values():
        file, _, function = re.sub(r"\[.*", "", test).partition("::")
        assert f"def {function}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), test


@pytest.fixture(scope="module")
def run():
    with runner() as run:
        yield run


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, test in TESTS.items() if test.startswith("upstream/")])
def test_fails_without(run, name):
    outcome = run(name)
    assert outcome.exit_code == FAILED, outcome.output[-5000:]

"""Numeric tests pass with the kernels of each instruction set that the processor has."""

import os
import subprocess
import sys

import pytest

from tests.instruction_sets import HERE, NUMERIC
from tests.store import ROOT

PRODUCTS = """
import hashlib, paddle
found = hashlib.sha256()
for rows, terms, columns in [(1, 64, 176), (7, 33, 65), (16, 176, 64), (64, 1000, 48), (100, 2000, 300)]:
    paddle.seed(1)
    first, second = paddle.randn([rows, terms]), paddle.randn([columns, terms])
    found.update(paddle.matmul(first, second, transpose_y=True).numpy().tobytes())
    found.update(paddle.matmul(first, second.t().contiguous()).numpy().tobytes())
print(found.hexdigest())
"""


def run(words: list[str], name: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | HERE[name]
    return subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True)


def test_all_numeric_tests_exist():
    for node in NUMERIC:
        path, _, name = node.partition("::")
        assert f"def {name.partition('[')[0]}" in (ROOT / path).read_text(encoding="utf-8"), node


@pytest.mark.nightly
def test_each_set_rounds_in_its_own_way():
    """Else the variables choose nothing, and the test below tests one set often."""
    products = {name: run(["-W", "ignore", "-c", PRODUCTS], name).stdout for name in HERE}
    assert len(set(products.values())) == len(products) and all(products.values())


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", HERE)
def test_numeric_tests_pass_with_the_kernels_of(name):
    done = run(["-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", "-m", "not nightly", *NUMERIC], name)
    assert done.returncode == 0, done.stdout[-6000:]

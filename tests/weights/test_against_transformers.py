"""Models that transformers made and ran give the same logits after an import. Needs `make test-long`'s packages."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from launch.weights.model_directories import import_directory
from tests.families.published import IN_TRANSFORMERS, MIXTURES
from tests.weights.test_tokenizer import TEXTS

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def theirs(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("transformers")
    ids = root / "ids.npy"
    np.save(ids, np.random.default_rng(2).integers(4, 400, size=(2, 40)))
    command = [sys.executable, "-W", "ignore", "-m", "tests.families.with_transformers", str(root), str(ids)]
    subprocess.run(command, cwd=ROOT, check=True)
    return root


@pytest.fixture(scope="module")
def ours(ranks, theirs) -> Path:
    targets = [str(theirs / "ours" / name) for name in IN_TRANSFORMERS]
    for name, target in zip(IN_TRANSFORMERS, targets, strict=True):
        import_directory(theirs / name, Path(target), dtype=None, shard_bytes=100_000)
    ranks(1, "tests.weights.logits_ranks:save_logits", targets, str(theirs / "ids.npy"))
    return theirs / "ours"


@pytest.mark.parametrize("name", IN_TRANSFORMERS)
def test_logits(theirs, ours, name):
    expected, found = np.load(theirs / f"{name}.expected.npy"), np.load(ours / f"{name}.logits.npy")
    assert expected.std() > 0.1
    assert np.abs(found - expected).max() <= TOLERANCE


@pytest.mark.parametrize("name", MIXTURES)
def test_training_with_the_auxiliary_loss(ranks, theirs, ours, name):
    expected = json.loads((theirs / f"{name}.training.json").read_text())
    (found,) = ranks(1, "tests.weights.logits_ranks:training", str(ours / name), str(theirs / "ids.npy"))
    assert found["loss"] == pytest.approx(expected["loss"], abs=TOLERANCE)
    assert expected["auxiliary"] > 1.9
    assert found["gradients"].keys() == expected["gradients"].keys()
    for tensor, norm in expected["gradients"].items():
        assert found["gradients"][tensor] == pytest.approx(norm, rel=1e-4, abs=1e-6), tensor


def test_tokenizer(ranks, theirs, ours):
    directory = str(ours / "llama3")
    (found,) = ranks(1, "tests.weights.tokenizer_ranks:encode", [directory], TEXTS)
    assert found[directory]["ids"] == json.loads((theirs / "ids.json").read_text())

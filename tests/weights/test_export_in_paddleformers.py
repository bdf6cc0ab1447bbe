"""PaddleFormers 1.2.0 reads what was exported as what it is (requirements/paddleformers.txt)."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from launch.weights.model_directories import export_directory, import_directory
from tests.families import published as models
from tests.store import ROOT

PADDLEFORMERS = Path(sys.prefix, "paddleformers")
TOLERANCE = 1e-5  # of logits of size 1, in float32
ABSENT = ("bloom", "opt", "mistral", "mixtral")  # families that it does not have, beside those with code of their own
NAMES = [name for name in models.IN_TRANSFORMERS if name not in ABSENT]


@pytest.mark.nightly
@pytest.mark.skipif(not PADDLEFORMERS.exists(), reason="make test-nightly puts PaddleFormers into .venv/paddleformers")
def test_logits(ranks, tmp_path):
    (tmp_path / "out").mkdir()
    ids = tmp_path / "out" / "ids.npy"
    np.save(ids, np.random.default_rng(2).integers(4, models.VOCABULARY, size=(2, 12)))
    for name in NAMES:
        published = models.save(tmp_path / "hf" / name, *models.IN_TRANSFORMERS[name]())
        import_directory(published, tmp_path / "ours" / name, None, 10**9)
        export_directory(tmp_path / "ours" / name, tmp_path / "out" / name, None, 10**9)
    ranks(1, "tests.weights.logits_ranks:save_logits", [str(tmp_path / "ours" / name) for name in NAMES], str(ids))
    command = [sys.executable, "-W", "ignore", "-m", "tests.weights.exported_in_paddleformers", str(tmp_path / "out")]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"PYTHONPATH": str(PADDLEFORMERS)})
    for name in NAMES:
        if name.startswith("ernie4_5-moe"):  # no CPU runs it there: every value is read, once
            tensors = load_file(tmp_path / "out" / name / "model.safetensors")
            written = np.sort(np.concatenate([tensor.ravel() for tensor in tensors.values()]))
            assert np.array_equal(np.load(tmp_path / "out" / f"{name}.read.npy"), written), name
            continue
        ours, theirs = (np.load(tmp_path / side / f"{name}.logits.npy") for side in ("ours", "out"))
        assert np.abs(ours - theirs).max() <= TOLERANCE * max(1.0, np.abs(ours).max()), name

"""docs/notebooks: executed whole, on this machine's CPU."""

import importlib.util
import json

import pytest

from docs.tools.notebooks import NOTEBOOKS, execute


@pytest.mark.nightly
@pytest.mark.skipif(importlib.util.find_spec("nbclient") is None, reason="requirements/compare.txt has nbclient")
def test_each_cell_runs_and_the_model_has_learned(tmp_path):
    printed = json.dumps(execute())
    assert "evaluation loss 0.0" in printed and "Lake Anselm" in printed
    assert "read back: configuration, weights and the ids of texts are the same" in printed and "image/png" in printed


def test_stored_outputs_are_of_a_run_without_faults():
    for path in NOTEBOOKS.glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        assert all(cell["outputs"] for cell in code[1:-1]) and "error: " not in json.dumps(code), path.name

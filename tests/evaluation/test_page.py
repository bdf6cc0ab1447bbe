"""The walk-through of docs/evaluate.md, in its order, in a folder that looks like the repository."""

import json
import re
import shutil

import pytest

from tests.repository_folder import ROOT, bash, link_repository

PAGE = (ROOT / "docs" / "evaluate.md").read_text(encoding="utf-8")
[RUN] = re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_the_commands_of_the_page(ranks, lm_eval, tmp_path):
    """With a smaller model than the demo's, which is random, and shorter texts."""
    (tmp_path / "repository").mkdir()
    folder = link_repository(tmp_path / "repository")
    ranks(1, "tests.training.finetune_material:make_material", str(tmp_path / "llama"))
    shutil.copytree(tmp_path / "llama" / "model", folder / "build" / "demo" / "model")
    (folder / "build" / "demo" / "text").mkdir()
    rows = [{"text": f"def f{number}(self):\n    return {number}\n"} for number in range(23)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "build" / "demo" / "text" / "heldout.jsonl").write_text(text)
    said = bash(RUN, folder).splitlines()[-4:]
    assert said[0] == "adapter: none -> build/demo/lora"
    measures = ["pairs (128)  exact_match ", "pairs (128)  f1 ", "text (23)  bits_per_byte "]
    assert [line.startswith(one) for line, one in zip(said[1:], measures, strict=True)] == [True] * 3
    assert "not judged" in said[3]

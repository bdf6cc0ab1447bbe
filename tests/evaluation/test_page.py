"""The walk-through of docs/evaluate.md, in its order, in a folder that looks like the repository."""

import json
import re
import shutil

import pytest

from tests.repository_folder import ROOT, bash, link_repository

PAGE = (ROOT / "docs" / "evaluate.md").read_text(encoding="utf-8")
[RUN] = re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)
SHOWN = re.findall(r"^```\n((?:pairs|adapter).*?)^```", PAGE, re.M | re.S)
TEXTS = 23  # modules of Python's library that `make demo` keeps from its model


def form(text: str) -> str:
    """Without numbers and verdicts, which are another model's."""
    return re.sub(r"\b(better|worse|noise)\b", "V", re.sub(r"[+-]?\b\d[\d,.]*|inf", "N", text))


def counts(text: str) -> list[str]:
    """Of the items of each line."""
    return re.findall(r"^\w+ \(\d+\)", text, re.M)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_the_commands_print_what_the_page_shows(ranks, tmp_path):
    """With a smaller model than the demo's, which is random, and shorter texts."""
    (tmp_path / "repository").mkdir()
    folder = link_repository(tmp_path / "repository")
    ranks(1, "tests.training.finetune_material:make_material", str(tmp_path / "llama"))
    shutil.copytree(tmp_path / "llama" / "model", folder / "build" / "demo" / "model")
    (folder / "build" / "demo" / "text").mkdir()
    rows = [{"text": f"def f{number}(self):\n    return {number}\n"} for number in range(TEXTS)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "build" / "demo" / "text" / "heldout.jsonl").write_text(text)
    said = bash(RUN, folder)
    of_adapter, compared = SHOWN
    assert form(said).endswith(form(of_adapter + compared))
    assert counts(said) == 2 * counts(of_adapter) + counts(compared) != []

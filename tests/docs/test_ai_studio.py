"""The cells of docs/ai-studio.md that need no card and no network, in folders laid out as AI Studio has them."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.test_readme import run
from tests.repository_folder import link_repository
from tests.store import ROOT

PAGE = ROOT / "docs" / "ai-studio.md"


def cell(words: str, home: Path) -> str:
    """Return the cell with these words as lines of a shell, in another home."""
    [found] = [body for body in re.findall(r"^ *```\n(.*?)^ *```$", PAGE.read_text(), re.M | re.S) if words in body]
    return re.sub(r"^ *[%!]", "", found, flags=re.M).replace("/home/aistudio", str(home))


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
def test_the_cells_write_below_the_folder_that_is_kept(tmp_path):
    home, link = tmp_path / "home", tmp_path / "linked"
    (home / "work").mkdir(parents=True)
    (home / "data/data12345").mkdir(parents=True)
    rows = [{"src": f"Question {number}?", "tgt": f"Answer {number}."} for number in range(200)]
    mounted = home / "data/data12345/train.json"
    mounted.write_text("".join(json.dumps(row) + "\n" for row in rows))
    before = mounted.stat().st_mtime_ns
    subprocess.run(["bash", "-euc", cell("git clone", home).replace("ADDRESS", f"file://{ROOT}")], check=True)
    clone = home / "work/paddle-llm-recipes"
    link.mkdir()
    shutil.copytree(link_repository(link) / ".venv", clone / ".venv")  # in place of make setup, which takes a network
    for words in ("make data-sft", "make rehearse-lora-qwen3-8b"):
        done = run(cell(words, home), home)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "fits: " in done.stdout
    assert {path.name for path in (home / "work/data").iterdir()} >= {"train.json", "dev.json"}
    assert (clone / "build/rehearsal/lora-qwen3-8b/output/run_summary.json").is_file()
    assert {path.name for path in home.iterdir()} == {"work", "data"} and mounted.stat().st_mtime_ns == before

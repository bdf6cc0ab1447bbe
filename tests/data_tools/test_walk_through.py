"""Every command of docs/data.md, in its order, in a folder that looks like the repository."""

import json
import re
import shutil
import subprocess
import sys

import pyarrow
import pytest
from pyarrow import parquet
from rich.console import Console

from data_tools.formats.tokens.indexed import IndexedDataset
from tests.data_tools.conftest import ROOT
from tests.data_tools.preferences.test_forms import ULTRAFEEDBACK
from tests.repository_folder import bash, link_repository

PAGE = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = link_repository(tmp_path_factory.mktemp("repository"))
    (folder / "AdvertiseGen").mkdir()
    rows = [{"content": f"类型#裤*版型#宽松*图案#{i}", "summary": f"第{i}条裤子是宽松的。"} for i in range(200)]
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    (folder / "AdvertiseGen" / "train.json").write_text("".join(lines), encoding="utf-8")
    (folder / "UltraFeedback").mkdir()
    preferences = [
        ULTRAFEEDBACK | {"chosen": said(f"Why {i}?", "So."), "rejected": said(f"Why {i}?", "No.")} for i in range(200)
    ]
    parquet.write_table(pyarrow.Table.from_pylist(preferences), folder / "UltraFeedback" / "train.parquet")
    return folder


def said(question: str, answer: str) -> list[dict]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_the_page_from_top_to_bottom(folder):
    told = [bash(block, folder) for block in BLOCKS]
    assert len(told) == len(BLOCKS) == 12
    assert "✓ every document decodes to its source" in told[4]
    assert 100_000 < IndexedDataset(folder / "piped" / "corpus").tokens.size < 1_000_000
    corpus = IndexedDataset(folder / "data" / "corpus")
    assert 100_000 < corpus.tokens.size < 1_000_000
    records = [json.loads(line) for line in (folder / "run" / "train_log.jsonl").read_text().splitlines()]
    losses = [record["loss"] for record in records if "loss" in record]
    assert losses[-1] < losses[0] - 1
    assert all(0 < record["data_share"] < 1 for record in records if "loss" in record)
    assert IndexedDataset(folder / "data" / "whole" / "corpus").tokens.size == corpus.tokens.size
    assert (folder / "lora" / "lora_config.json").is_file()
    assert "--dataset_name_or_path data/advertise" in told[-2]
    assert "200 pairs (chosen/rejected messages), chats" in told[-1] and "data/messages.json: 19" in told[-1]


@pytest.mark.nightly
def test_rows_of_the_benchmark_have_the_same_ids():
    """At a size that says nothing of speed."""
    from benchmarks import tokenizing

    report = tokenizing.measure(megabytes=1, workers=1, rounds=1, console=Console(stderr=True))
    assert not [short for short in tokenizing.check(report) if "ids differ" in short]
    assert {len(line) for line in tokenizing.lines(report)} == {len(tokenizing.HEADINGS)}


@pytest.mark.nightly
def test_the_benchmark_of_the_loader():
    command = [sys.executable, "benchmarks/loader.py", "--millions", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "a batch, on average" in done.stdout, done.stderr


def test_the_bars_hold_in_what_is_stored():
    from benchmarks import tokenizing

    assert not tokenizing.check(json.loads(tokenizing.RESULTS.read_text()))


def test_makefile_has_a_target_for_each_tool():
    tools = re.search(r"^DATA_TOOLS := (.*)$", (ROOT / "Makefile").read_text(), re.M)[1].split()
    commands = {path.stem for path in (ROOT / "data_tools").glob("*.py") if "Parser(" in path.read_text()}
    assert set(tools) == commands - {"cli", "stdlib_corpus"}

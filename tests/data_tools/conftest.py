"""Corpora for the tests of data_tools."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from data_tools.cli import guarded
from data_tools.formats.tokens.indexed import IndexedWriter
from data_tools.stdlib_corpus import write_corpus
from data_tools.tokenizer import save_tokenizer, train_tokenizer
from tests.store import kept

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def write(tmp_path):
    """write("a", [[1, 2], [3]], vocab_size=300) writes a corpus and returns its prefix."""

    def write_documents(name, documents, vocab_size=300):
        prefix = tmp_path / name
        with IndexedWriter(prefix, vocab_size) as writer:
            for document in documents:
                writer.add_document(document)
        return str(prefix)

    return write_documents


@pytest.fixture
def write_rows(tmp_path):
    """write_rows("a.json", [{...}, ...]) writes a row a line and returns the path."""

    def write(name: str, rows: list) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write


@pytest.fixture
def documents():
    """200 documents of 0 to 39 ids below 300."""
    random = np.random.default_rng(0)
    return [random.integers(0, 300, size) for size in random.integers(0, 40, 200)]


def make_material(folder: Path) -> None:
    """train.jsonl and heldout.jsonl: 1 MB of the standard library; tokenizer: a BPE of 1000 ids, trained on them."""
    write_corpus(folder, Path(json.__file__).parent.parent, max_mb=1)
    lines = (folder / "train.jsonl").read_bytes().splitlines()
    save_tokenizer(folder / "tokenizer", train_tokenizer([json.loads(line)["text"] for line in lines], 1000))


@pytest.fixture(scope="session")
def text():
    """A folder with train.jsonl, heldout.jsonl and the tokenizer trained on the former."""
    return kept("material/data_tools", make_material)[0]


@pytest.fixture(scope="session")
def sources(text):
    """The texts of train.jsonl."""
    return [json.loads(line)["text"] for line in (text / "train.jsonl").read_bytes().splitlines()]


@pytest.fixture(scope="session")
def tokenizer_dir(text):
    return text / "tokenizer"


@pytest.fixture
def command(monkeypatch, capsys):
    """command("verify", ...) runs what `python -m data_tools.verify ...` does, in this process."""

    def run(name, *args) -> subprocess.CompletedProcess:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", [f"data_tools.{name}", *map(str, args)])
        try:
            code = guarded(importlib.import_module(f"data_tools.{name}").main)
        except SystemExit as end:
            code = end.code or 0
        return subprocess.CompletedProcess(sys.argv, code, *capsys.readouterr())

    return run


def run_module(name: str, *args, **options) -> subprocess.CompletedProcess:
    """`python -m data_tools.NAME ...` in a process of its own."""
    words = [sys.executable, "-m", f"data_tools.{name}", *map(str, args)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run(words, cwd=ROOT, text=True, timeout=60, **streams)

"""Corpora for the tests of data_tools."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from data_tools.formats.tokens.indexed import IndexedWriter
from data_tools.stdlib_corpus import write_corpus
from data_tools.tokenizer import save_tokenizer, train_tokenizer

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
def documents():
    """200 documents of 0 to 39 ids below 300."""
    random = np.random.default_rng(0)
    return [random.integers(0, 300, size) for size in random.integers(0, 40, 200)]


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    """A folder with train.jsonl and heldout.jsonl: 1 MB of the standard library."""
    folder = tmp_path_factory.mktemp("text")
    write_corpus(folder, Path(json.__file__).parent.parent, max_mb=1)
    return folder


@pytest.fixture(scope="session")
def sources(text):
    """The texts of train.jsonl."""
    return [json.loads(line)["text"] for line in (text / "train.jsonl").read_bytes().splitlines()]


@pytest.fixture(scope="session")
def tokenizer_dir(tmp_path_factory, sources):
    """A directory with a BPE tokenizer of 1000 ids, trained on the sources."""
    directory = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(directory, train_tokenizer(sources, 1000))
    return directory


@pytest.fixture
def command():
    """command("verify", ...) runs `python -m data_tools.verify ...` and returns the finished process."""

    def run(name, *args):
        arguments = [sys.executable, "-m", f"data_tools.{name}", *map(str, args)]
        return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=60)

    return run

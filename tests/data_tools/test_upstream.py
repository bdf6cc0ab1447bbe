"""paddlenlp reads our files as we do, writes the same bytes, splits alike, and gives the same ids."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from data_tools.encoders import load_sentencepiece
from data_tools.formats.indexed import IndexedDataset, IndexedWriter
from data_tools.formats.samples import split_boundaries
from data_tools.tokenizer import MODEL_NAME
from tests.data_tools.conftest import ROOT


@pytest.fixture(scope="module")
def upstream(tmp_path_factory, tokenizer_dir, sources):
    """(our prefix, the texts, what paddlenlp found)."""
    folder = tmp_path_factory.mktemp("upstream")
    prefix = folder / "ours"
    random = np.random.default_rng(0)
    with IndexedWriter(prefix, 32_000) as writer:
        for size in random.integers(1, 50, 30):
            writer.add_document(random.integers(0, 32_000, size))
    texts = [*sources[:5], " leading", "x\n\n  y \t\r\n", "中文 é 😀", "I 'm , do n't ."]
    (folder / "texts.json").write_text(json.dumps(texts))
    program = Path(__file__).with_name("upstream_reads.py")
    arguments = [sys.executable, program, prefix, folder, tokenizer_dir, folder / "texts.json"]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return prefix, texts, json.loads(done.stdout.splitlines()[-1])


def test_documents(upstream):
    prefix, _, found = upstream
    ours = IndexedDataset(prefix)
    assert found["documents"] == [ids.tolist() for ids in ours]
    assert found["boundaries"] == ours.document_offsets.tolist()


def test_bytes(upstream):
    prefix, _, found = upstream
    ours = [hashlib.sha256(Path(f"{prefix}{suffix}").read_bytes()).hexdigest() for suffix in (".bin", ".idx")]
    assert found["rewritten"] == ours


def test_splits(upstream):
    for named, boundaries in upstream[2]["splits"].items():
        split, documents = named.split()
        assert split_boundaries(split, int(documents)) == boundaries, named


def test_tokenizer(upstream, tokenizer_dir):
    _, texts, found = upstream
    tokenizer = load_sentencepiece(tokenizer_dir / MODEL_NAME)
    assert found["auto"] == "LlamaTokenizer"
    assert found["special"] == [0, 1, 2, 1000]
    assert found["ids"] == [[1, *ids] for ids in tokenizer.encode(texts)]
    assert found["decoded"] == texts

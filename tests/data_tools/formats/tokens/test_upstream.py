"""paddlenlp and Megatron-LM read our files as we do; paddlenlp writes the same bytes, has the same ids and splits."""

import hashlib
import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from data_tools.formats.tokens.indexed import IndexedDataset, IndexedWriter
from data_tools.formats.tokens.samples import split_boundaries
from data_tools.text.encoders import load_sentencepiece
from data_tools.tokenize import tokenize_files
from data_tools.tokenizer import MODEL_NAME
from tests.data_tools.conftest import ROOT


@pytest.fixture(scope="module")
def upstream(tmp_path_factory, tokenizer_dir, sources):
    """(our prefix, the texts, what paddlenlp found)."""
    folder = tmp_path_factory.mktemp("upstream")
    random = np.random.default_rng(0)
    for name, vocab_size in (("ours", 32_000), ("ours-int32", 100_000)):
        prefix = folder / name
        with IndexedWriter(prefix, vocab_size) as writer:
            for size in random.integers(1, 50, 30):
                writer.add_document(random.integers(0, vocab_size, size))
    prefix = folder / "ours"
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
    assert found["int32"] == [ids.tolist() for ids in IndexedDataset(f"{prefix}-int32")]


class MegatronReader:
    """Reads what Megatron-LM's IndexedDataset reads, from where it does, after its documentation: torch, which it
    needs, is no dependency of ours."""

    DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}

    def __init__(self, prefix):
        index = Path(f"{prefix}.idx").read_bytes()
        magic, version, code, sequences, documents = struct.unpack_from("<9sQBQQ", index)
        assert (magic, version) == (b"MMIDIDX\x00\x00", 1)
        self.dtype = np.dtype(self.DTYPES[code])
        self.lengths = np.frombuffer(index, "<i4", sequences, offset=34)
        self.pointers = np.frombuffer(index, "<i8", sequences, offset=34 + 4 * sequences)
        self.document_indices = np.frombuffer(index, "<i8", documents, offset=34 + 12 * sequences)
        assert len(index) == 34 + 12 * sequences + 8 * documents
        assert self.lengths.size == self.document_indices[-1]  # as it checks itself
        self.content = Path(f"{prefix}.bin").read_bytes()

    def __getitem__(self, i: int) -> np.ndarray:
        if i == self.lengths.size:
            raise IndexError
        return np.frombuffer(self.content, self.dtype, self.lengths[i], self.pointers[i])


@pytest.mark.parametrize("vocab_size, dtype", [(300, np.uint16), (65_499, np.uint16), (65_500, np.int32)])
def test_megatron_reads_the_same(write, documents, vocab_size, dtype):
    prefix = write("a", documents, vocab_size)
    ours, theirs = IndexedDataset(prefix), MegatronReader(prefix)
    assert ours.dtype == theirs.dtype == dtype
    assert [ids.tolist() for ids in theirs] == [ids.tolist() for ids in ours] == [ids.tolist() for ids in documents]
    assert theirs.document_indices.tolist() == ours.document_offsets.tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_megatron_reads_what_tokenize_wrote(text, tokenizer_dir, tmp_path, workers):
    tokenize_files([str(text / "heldout.jsonl")], tokenizer_dir, tmp_path / "a", workers=workers)
    ours, theirs = IndexedDataset(tmp_path / "a"), MegatronReader(tmp_path / "a")
    assert [ids.tolist() for ids in theirs] == [ids.tolist() for ids in ours]


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

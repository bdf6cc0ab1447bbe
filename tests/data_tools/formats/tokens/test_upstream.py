"""paddlenlp and Megatron-LM read our files as we do; paddlenlp writes the same bytes, has the same ids and splits."""

import struct
from pathlib import Path

import numpy as np
import pytest

from data_tools.formats.tokens.indexed import IndexedDataset
from data_tools.formats.tokens.samples import split_boundaries
from data_tools.text.encoders import load_sentencepiece
from data_tools.tokenize import tokenize_files
from data_tools.tokenizer import MODEL_NAME
from tests.data_tools.formats.tokens.upstream_ranks import sha256


def listed(corpus) -> list[list[int]]:
    return [ids.tolist() for ids in corpus]


def test_paddlenlp_reads_writes_splits_and_encodes_the_same(ranks, write, tmp_path, tokenizer_dir, sources):
    random = np.random.default_rng(0)
    for name, vocab_size in (("ours", 32_000), ("ours-int32", 100_000)):
        prefix = write(name, [random.integers(0, vocab_size, size) for size in random.integers(1, 50, 30)], vocab_size)
    prefix = prefix.removesuffix("-int32")
    texts = [*sources[:5], " leading", "x\n\n  y \t\r\n", "中文 é 😀", "I 'm , do n't ."]
    reads = "tests.data_tools.formats.tokens.upstream_ranks:reads"
    [found] = ranks(1, reads, prefix, str(tmp_path), str(tokenizer_dir), texts)
    ours = IndexedDataset(prefix)
    assert found["documents"] == listed(ours) and found["boundaries"] == ours.document_offsets.tolist()
    assert found["int32"] == listed(IndexedDataset(f"{prefix}-int32"))
    assert found["rewritten"] == [sha256(f"{prefix}{suffix}") for suffix in (".bin", ".idx")]
    for named, boundaries in found["splits"].items():
        split, documents = named.split()
        assert split_boundaries(split, int(documents)) == boundaries, named
    assert (found["auto"], found["special"]) == ("LlamaTokenizer", [0, 1, 2, 1000])
    assert found["ids"] == [[1, *ids] for ids in load_sentencepiece(tokenizer_dir / MODEL_NAME).encode(texts)]
    assert found["decoded"] == texts


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
    assert listed(theirs) == listed(ours) == listed(documents)
    assert theirs.document_indices.tolist() == ours.document_offsets.tolist()


def test_megatron_reads_what_tokenize_wrote(text, tokenizer_dir, tmp_path):
    tokenize_files([str(text / "heldout.jsonl")], tokenizer_dir, tmp_path / "a", workers=2)
    assert listed(MegatronReader(tmp_path / "a")) == listed(IndexedDataset(tmp_path / "a"))

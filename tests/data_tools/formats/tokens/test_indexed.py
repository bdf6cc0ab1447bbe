"""Token files: bytes, checks at opening, and what an interrupted write leaves."""

import os
import signal
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from data_tools.formats.errors import DataError
from data_tools.formats.tokens import indexed
from data_tools.formats.tokens.indexed import IndexedDataset, IndexedWriter, token_dtype
from tests.data_tools.conftest import ROOT


def test_the_bytes_are_those_of_the_format(write, monkeypatch):
    prefix = write("a", [[1, 2, 3], [], [299, 0]])
    header = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 3, 4)
    index = header + struct.pack("<3i3q4q", 3, 0, 2, 0, 6, 6, 0, 1, 2, 3)
    assert Path(f"{prefix}.bin").read_bytes() == struct.pack("<5H", 1, 2, 3, 299, 0)
    assert Path(f"{prefix}.idx").read_bytes() == index
    monkeypatch.setattr(indexed, "BLOCK_DOCUMENTS", 2)  # as that of more than a million documents is written
    assert Path(f"{write('b', [[1, 2, 3], [], [299, 0]])}.idx").read_bytes() == index


@pytest.mark.parametrize("vocab_size, dtype", [(65499, np.uint16), (65500, np.int32), (250_000, np.int32)])
def test_round_trip_in_the_narrowest_dtype(write, vocab_size, dtype):
    documents = [[0, vocab_size - 1], [], [7] * 1000]
    dataset = IndexedDataset(write("a", documents, vocab_size))
    assert dataset.dtype == dtype == token_dtype(vocab_size)
    assert [dataset[i].tolist() for i in range(len(dataset))] == documents
    assert dataset.sizes.tolist() == [2, 0, 1000]
    assert dataset.document_offsets.tolist() == [0, 1, 2, 3]
    assert dataset.largest_id() == vocab_size - 1
    assert np.shares_memory(dataset[2], dataset.tokens) and not dataset[2].flags.writeable  # a view of the file


@pytest.mark.parametrize("wrong", [-1, 300, 70_000])
def test_an_id_beyond_the_vocabulary_is_not_written(tmp_path, wrong):
    with pytest.raises(DataError, match=rf"document 1 for .*/a.bin: token id {wrong}, .* ids 0 to 299"):
        with IndexedWriter(tmp_path / "a", 300) as writer:
            writer.add_document([1, 2])
            writer.add_document([3, wrong, 4])
    assert list(tmp_path.iterdir()) == []


def test_a_stored_id_beyond_the_vocabulary_is_named_with_its_document(write, monkeypatch):
    monkeypatch.setattr(indexed, "BLOCK_TOKENS", 4)  # the id lies in the second block
    dataset = IndexedDataset(write("a", [[1, 2, 3, 4], [], [250], [251]]))
    dataset.check_vocabulary(252)
    with pytest.raises(DataError, match=r"a\.bin: token id 250 in document 2, .* ids 0 to 249"):
        dataset.check_vocabulary(250)
    prefix = write("b", [[1, 2], [3, 4]], vocab_size=100_000)
    patch(f"{prefix}.bin", 12, struct.pack("<i", -5))
    with pytest.raises(DataError, match="token id -5 in document 1"):
        IndexedDataset(prefix).check_vocabulary(100_000)


def patch(path, offset, content):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(content)


def put(suffix, offset, content):
    return lambda prefix: patch(f"{prefix}.{suffix}", offset, content)


def cut(suffix, size):
    return lambda prefix: os.truncate(f"{prefix}.{suffix}", size)


def index_of_another_corpus(prefix):
    with IndexedWriter(prefix + "other", 300) as writer:
        writer.add_document([1] * 7)
    os.replace(f"{prefix}other.idx", f"{prefix}.idx")


@pytest.mark.parametrize(
    "damage, message",
    [
        (cut("bin", 8), r"a\.bin is truncated.*: 8 bytes, expected 10 for 5 tokens of uint16"),
        (index_of_another_corpus, r"a\.bin is truncated, or is not of the same corpus.*expected 14"),
        (put("bin", 10, b"\0\0"), r"a\.bin is too long.*: 12 bytes, expected 10"),
        (put("idx", 0, b"TNT"), r"a\.idx is not an index: it begins with b'TNT.*expected b'MMIDIDX"),
        (cut("idx", 20), r"a\.idx is truncated: 20 bytes, expected 34"),
        (cut("idx", 50), r"a\.idx is truncated.*: 50 bytes, expected 82 for 2 documents"),
        (put("idx", 9, b"\2"), r"a\.idx: version 2, dtype code 8; this reader knows version 1"),
        (put("idx", 17, b"\7"), r"a\.idx: version 1, dtype code 7; .*codes 1, 2, 3, 4, 5, 8"),
        (put("idx", 50, b"\4"), r"a\.idx is damaged: expected the start of each of its 2 documents"),
        (lambda prefix: os.remove(f"{prefix}.bin"), r"a\.bin is missing: a corpus is PREFIX.bin and PREFIX.idx"),
        (lambda prefix: os.remove(f"{prefix}.idx"), r"a\.idx is missing"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(write, damage, message):
    prefix = write("a", [[1, 2, 3], [4, 5]])
    damage(prefix)
    with pytest.raises(DataError, match=message):
        IndexedDataset(prefix)


def test_a_corpus_without_tokens_is_refused(write):
    with pytest.raises(DataError, match=r"a\.bin has no tokens"):
        IndexedDataset(write("a", []))


def test_content_key_follows_every_byte_and_of_a_large_file_samples_both_ends(write, monkeypatch):
    keys = [
        IndexedDataset(write("a", [[1, 2, 3], [4]])).content_key(),
        IndexedDataset(write("b", [[1, 2, 4], [4]])).content_key(),  # same sizes, another .bin
        IndexedDataset(write("c", [[1, 2], [3, 4]])).content_key(),  # same .bin, other documents
        IndexedDataset(write("d", [[1, 2, 3], [4]], vocab_size=100_000)).content_key(),
    ]
    assert len(set(keys)) == 4
    assert IndexedDataset(write("e", [[1, 2, 3], [4]])).content_key() == keys[0]
    for name, value in {"KEY_WHOLE_BYTES": 100, "KEY_BLOCKS": 4, "KEY_BLOCK_BYTES": 10}.items():
        monkeypatch.setattr(indexed, name, value)
    changed = [np.arange(1000) == place for place in (-1, 0, 999, 332)]  # 332: byte 664, in the block from byte 663
    assert len({IndexedDataset(write("a", [ids.astype(int)])).content_key() for ids in changed}) == 4


def test_a_writer_killed_in_the_middle_leaves_nothing_that_looks_finished(tmp_path):
    program = """
        import os, signal, sys
        from data_tools.formats.tokens.indexed import IndexedWriter
        with IndexedWriter(sys.argv[1], 300) as writer:
            writer.add_document(range(200))
            os.kill(os.getpid(), signal.SIGKILL)
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "a")], cwd=ROOT)
    assert killed.returncode == -signal.SIGKILL
    assert [path.suffix.split("-")[0] for path in tmp_path.iterdir()] == [".partial", ".partial"]


def test_what_fails_in_the_middle_leaves_the_earlier_corpus(write, tmp_path, monkeypatch):
    prefix = write("a", [[1, 2, 3]])
    with pytest.raises(KeyboardInterrupt), IndexedWriter(prefix, 300) as writer:
        writer.add_document([9])
        raise KeyboardInterrupt
    assert IndexedDataset(prefix)[0].tolist() == [1, 2, 3]
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write .*/file/a.idx: .* Name a folder you may write to"):
        with IndexedWriter(tmp_path / "file" / "a", 300):
            pass

    def fail(file, sizes, dtype):
        raise OSError(28, "No space left on device")

    # A disk that fills up while the index is written leaves the earlier corpus, and no file of the new one.
    monkeypatch.setattr(indexed, "write_index", fail)
    with pytest.raises(OSError, match="No space left on device: '.*/a.bin'"):
        write("a", [[4, 5, 6]])
    assert IndexedDataset(prefix)[0].tolist() == [1, 2, 3] and not list(tmp_path.glob("*.partial-*"))

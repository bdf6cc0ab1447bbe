"""Files that are none, or hold more than their size says."""

import gzip
import os
import tracemalloc
from collections.abc import Iterator

import pyarrow
import pytest
from pyarrow import parquet

from data_tools.dialogues.chat_template import _read
from data_tools.formats import records as formats
from data_tools.formats.errors import DataError
from data_tools.formats.json_files import quoted, read_object
from data_tools.formats.records import csv_rows, records
from data_tools.text.blocks import read_blocks
from launch.config.key_files import read_source
from launch.families.named_configs import read_config

READERS = {
    "rows": lambda path: list(records(path)),
    "CSV": lambda path: list(csv_rows(path)),
    "a configuration": lambda path: read_config(path, "a model"),
    "a file of arguments": read_source,
    "a chat template": _read,
    "a file that need not be there": read_object,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_may_never_end_is_not_read(tmp_path, reader, kind):
    path = tmp_path / "x.json"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    with pytest.raises(DataError, match=r"x\.json: found a pipe or a device, expected a file\. Write its content into"):
        READERS[reader](path)


def test_texts_have_quotes_in_messages():
    assert [quoted(value) for value in ("true", True, 1, "1", "a'\x1b")] == ["'true'", "True", "1", "'1'", '"a\'\\x1b"']


def test_a_text_that_many_rows_have_is_read_with_few_of_them(tmp_path):
    """600 bytes stand for 40 GB."""
    texts = pyarrow.DictionaryArray.from_arrays([0] * 10_000, ["a" * (4 << 20)])
    file = tmp_path / "x.parquet"
    parquet.write_table(pyarrow.table({"text": texts}), file, compression="zstd")
    blocks = read_blocks([str(file)])
    assert [len(next(blocks).content) for _ in range(2)] == [127, 127]
    assert next(iter(records(file)))[1] == {"text": "a" * (4 << 20)}
    usual = pyarrow.table({"text": [f"{number} " * 100 for number in range(10_000)]})
    parquet.write_table(usual, tmp_path / "y.parquet")
    assert min(len(block.content) for block in read_blocks([str(tmp_path / "y.parquet")])) > 100


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.jsonl.zst"])
def test_packed_rows_pass_through_memory_one_by_one(tmp_path, monkeypatch, name):
    monkeypatch.setattr(formats, "LONGEST_LINE_BYTES", 1 << 20)
    monkeypatch.setattr(formats, "LONGEST_LIST_BYTES", 1 << 20)
    path = tmp_path / name

    def pack(content: bytes, more: bytes = b"") -> Iterator[tuple[int, dict | str]]:
        packed = pyarrow.compress(content, "gzip" if name.endswith("gz") else "zstd", asbytes=True)
        path.write_bytes(packed + more)
        del content
        tracemalloc.reset_peak()
        return records(path)

    row = b'{"a": "' + b"b" * 1000 + b'"}\n'
    tracemalloc.start()
    assert sum(1 for _ in pack(row * (16 << 10))) == 16 << 10
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    with pytest.raises(DataError, match=rf"{name}:2: more than 1 MiB without an end, too long for one row. Give JSON"):
        list(pack(row + b"b" * (16 << 20)))
    with pytest.raises(DataError, match=rf"{name}: a JSON list of more than 1 MiB, which is read whole. Give JSON lin"):
        list(pack(b"[" + row * (16 << 10)))
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    assert [number for number, _ in pack(b"\xef\xbb\xbf\n" + row)] == [2]
    with pytest.raises(DataError, match=f"{name} cannot be unpacked: .*. Copy or make it again"):
        list(pack(row, b"nonsense"))


def test_the_zeros_that_fill_a_tape_are_no_content(tmp_path):
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n') * 2 + bytes(512))
    assert list(records(path)) == [(1, {"a": 1}), (2, {"a": 1})]
    assert [block.content for block in read_blocks([str(path)])] == [b'{"a": 1}\n' * 2]

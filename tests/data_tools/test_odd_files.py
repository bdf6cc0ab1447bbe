"""Files that are none, or hold more than their size says."""

import os

import pyarrow
import pytest
from pyarrow import parquet

from data_tools.dialogues.chat_template import _read
from data_tools.formats.errors import DataError
from data_tools.formats.json_files import quoted
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

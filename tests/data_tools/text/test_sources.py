"""Reading text: what is read, and where a broken line is."""

import gzip
import json

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from data_tools.formats.errors import DataError
from data_tools.text.sources import batches, read_documents, total_bytes


def test_jsonl_and_txt_in_the_order_given(tmp_path):
    lines = [json.dumps({"text": "a\u2028b\n"}, ensure_ascii=False), "", json.dumps({"text": "", "other": 1})]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "b.txt").write_bytes("one\r\ndocument é".encode())
    files = [str(tmp_path / "b.txt"), str(tmp_path / "a.jsonl")]
    found = [(document.text, document.where) for document in read_documents(files)]
    expected = [("one\r\ndocument é", "b.txt:1"), ("a\u2028b\n", "a.jsonl:1"), ("", "a.jsonl:3")]
    assert found == [(text, f"{tmp_path}/{where}") for text, where in expected]


def test_batches_keep_order_and_bound_memory(text):
    files = [str(text / "train.jsonl"), str(text / "heldout.jsonl")]
    found = list(read_documents(files))
    assert sum(document.size for document in found) == total_bytes(files)
    grouped = list(batches(found, batch_bytes=50_000))
    assert [document for batch in grouped for document in batch] == found
    assert all(sum(document.size for document in batch[:-1]) < 50_000 for batch in grouped)


@pytest.mark.parametrize(
    "line, message",
    [
        (b'{"text": "a"', r"a\.jsonl:2: not JSON, .* at column 13"),
        (b'{"text": "a', r"a\.jsonl:2: not JSON, Unterminated string starting at column 10\. "),
        (b'{"text": "\xff"}', r"a\.jsonl:2: not UTF-8 at byte 10\. Convert the file to UTF-8\. Or leave such"),
        (
            '{"text": "\u6587"}'.encode("gb18030"),
            r"byte 10, can be read as GB18030\. Convert the file: `iconv -f GB18030 -t UTF-8 \S+ > \S+/utf8-a.jsonl`",
        ),
        (b'["a"]', r"a\.jsonl:2: a JSON list, expected an object"),
        (
            b'{"content": "a", "id": 3}',
            r"a\.jsonl:2: no text at key 'text'; the keys are content, id. .*--text_key",
        ),
        (b'{"text": 3}', r"a\.jsonl:2: 'text' is 3, expected a text"),
        (b'{"text": null}', r"a\.jsonl:2: 'text' is null, expected a text\. Mend or remove the line"),
        (b'{"text": ["a"]}', r"a\.jsonl:2: 'text' is \['a'\], expected a text"),
        (b'{"\\ud800": 1}', r"a\.jsonl:2: no text at key 'text'; the keys are \\ud800\. Name one"),
        (b"[" * 100_000, r"a\.jsonl:2: JSON that Python refuses, too many brackets within brackets"),
        (b'{"text": ' + b"9" * 5000 + b"}", r"a\.jsonl:2: JSON that Python refuses, Exceeds the limit"),
        (b'\xef\xbb\xbf{"text": "a"}', r"a\.jsonl:2: not JSON, Unexpected UTF-8 BOM"),
        (b'{"text": "\\ud83d"}', r"a\.jsonl:2: half a surrogate pair"),
    ],
)
def test_a_broken_line_is_named(tmp_path, line, message):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "fine"}\n' + line + b"\n")
    with pytest.raises(DataError, match=message):
        list(read_documents([str(path)]))


def test_a_byte_order_mark_before_a_file_is_no_part_of_it(tmp_path):
    marked = "\ufeff".encode()
    (tmp_path / "a.jsonl").write_bytes(marked + b'{"text": "one"}\n{"text": "\xef\xbb\xbftwo"}\n')
    (tmp_path / "b.txt").write_bytes(marked + b"three")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(marked + b'{"text": "four"}'))
    files = [str(tmp_path / name) for name in ("a.jsonl", "b.txt", "c.jsonl.gz")]
    assert [document.text for document in read_documents(files)] == ["one", "\ufefftwo", "three", "four"]


def test_so_many_bad_lines_as_allowed_are_left_out(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{\n{"text": null}\n{"text": "two"}\n')
    files = [str(tmp_path / "a.jsonl")]
    assert [document.text for document in read_documents(files, max_bad_lines=2)] == ["one", "two"]
    assert "left out: " in capsys.readouterr().err
    with pytest.raises(DataError, match=r"a.jsonl:3: 'text' is null.* 1 before it were left out"):
        list(read_documents(files, max_bad_lines=1))


def write_column(tmp_path, column) -> list[str]:
    parquet.write_table(pyarrow.table({"text": column}), tmp_path / "a.parquet")
    return [str(tmp_path / "a.parquet")]


def test_columns_of_texts_in_all_their_forms_are_read_and_others_refused(tmp_path):
    for kind, values, found in [
        (pyarrow.list_(pyarrow.string()), [["a", "b"]], "list<"),
        (pyarrow.struct([("s", pyarrow.string())]), [{"s": "a"}], "struct<s: string>"),
        (pyarrow.binary(), [b"a"], "binary"),
        (pyarrow.int64(), [1], "int64"),
    ]:
        with pytest.raises(DataError, match=f"a.parquet: no column of texts 'text'; there are text .{found}"):
            list(read_documents(write_column(tmp_path, pyarrow.array(values, kind))))
    for kind in (pyarrow.large_string(), pyarrow.dictionary(pyarrow.int8(), pyarrow.string())):
        files = write_column(tmp_path, pyarrow.array(["a", "b", "a"]).cast(kind))
        assert [one.text for one in read_documents(files)] == ["a", "b", "a"]


def test_a_row_of_parquet_that_is_not_utf8_is_named(tmp_path):
    offsets, content = pyarrow.py_buffer(np.array([0, 1, 2, 3], np.int32)), pyarrow.py_buffer(b"a\xffc")
    files = write_column(tmp_path, pyarrow.Array.from_buffers(pyarrow.string(), 3, [None, offsets, content]))
    with pytest.raises(DataError, match=r"a\.parquet:2: not UTF-8 at byte 0\. Convert the file to UTF-8"):
        list(read_documents(files))
    assert [(one.text, one.line) for one in read_documents(files, max_bad_lines=1)] == [("a", 1), ("c", 3)]

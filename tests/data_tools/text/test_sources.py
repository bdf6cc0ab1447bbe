"""Reading text: what is read, and where a broken line is."""

import json

import pytest

from data_tools.formats.errors import DataError
from data_tools.text.sources import batches, find_files, read_documents, total_bytes


def test_jsonl_and_txt_in_the_order_given(tmp_path):
    lines = [json.dumps({"text": "a\u2028b\n"}, ensure_ascii=False), "", json.dumps({"text": "", "other": 1})]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "b.txt").write_bytes("one\r\ndocument é".encode())
    files = [str(tmp_path / "b.txt"), str(tmp_path / "a.jsonl")]
    found = [(document.text, document.where) for document in read_documents(files)]
    expected = [("one\r\ndocument é", "b.txt:1"), ("a\u2028b\n", "a.jsonl:1"), ("", "a.jsonl:3")]
    assert found == [(text, f"{tmp_path}/{where}") for text, where in expected]


def test_sizes_add_up_to_the_files(text):
    files = [str(text / "train.jsonl"), str(text / "heldout.jsonl")]
    assert sum(document.size for document in read_documents(files)) == total_bytes(files)


def test_batches_keep_order_and_bound_memory(text):
    found = list(read_documents([str(text / "train.jsonl")]))
    grouped = list(batches(found, batch_bytes=50_000))
    assert [document for batch in grouped for document in batch] == found
    assert all(sum(document.size for document in batch[:-1]) < 50_000 for batch in grouped)


@pytest.mark.parametrize(
    "line, message",
    [
        (b'{"text": "a"', r"a\.jsonl:2: not JSON, .* at column 13"),
        (b'{"text": "a', r"a\.jsonl:2: not JSON, Unterminated string starting at column 10\. "),
        (b'{"text": "\xff"}', r"a\.jsonl:2: not UTF-8 at byte 10\. Convert the file to UTF-8\.$"),
        (
            '{"text": "\u6587"}'.encode("gb18030"),
            r"byte 10, can be read as GB18030\. Convert the file: `iconv -f GB18030 -t UTF-8 \S+ > \S+/utf8-a.jsonl`",
        ),
        (b'["a"]', r"a\.jsonl:2: a JSON list, expected an object"),
        (
            b'{"content": "a", "id": 3}',
            r"a\.jsonl:2: no text at key 'text'; the keys are content, id. .*--text_key",
        ),
        (b'{"text": 3}', r"a\.jsonl:2: no text at key 'text'"),
        (b'{"text": "\\ud83d"}', r"a\.jsonl:2: half a surrogate pair"),
    ],
)
def test_a_broken_line_is_named(tmp_path, line, message):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "fine"}\n' + line + b"\n")
    with pytest.raises(DataError, match=message):
        list(read_documents([str(path)]))


def test_a_missing_file_and_one_of_unknown_kind(tmp_path):
    with pytest.raises(
        DataError, match=r"x\.jsonl is not a file, .* Name files that end in .jsonl, .json, .txt"
    ):
        find_files([str(tmp_path / "x.jsonl")])
    (tmp_path / "a.csv").write_text("a")
    with pytest.raises(DataError, match=r"a\.csv: unknown kind of file"):
        find_files([str(tmp_path / "a.csv")])

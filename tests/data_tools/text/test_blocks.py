"""Blocks of files: nothing lost, packed or not, and reading that goes on at any block's end; where a broken line is."""

import gzip
import io
import json
import os
import random
import re
import subprocess
import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from data_tools.formats.errors import DataError
from data_tools.text import blocks
from data_tools.text.blocks import kind_of, read_blocks
from data_tools.text.sources import BadLine, batches, documents, find_files, read_documents, total_bytes
from tests.data_tools.conftest import ROOT

TEXTS = [f"text {i} " + "中文 é\n" * (i * 13 % 50) for i in range(80)] + ["", "x" * 5000]


def jsonl(texts=TEXTS) -> bytes:
    return b"".join(json.dumps({"text": text, "id": 1}, ensure_ascii=False).encode() + b"\n" for text in texts)


def write_parquet(path):
    table = pyarrow.table({"id": range(len(TEXTS)), "text": TEXTS})
    pyarrow.parquet.write_table(table, path, row_group_size=30)


WRITERS = {
    "a.jsonl": lambda path: path.write_bytes(jsonl()),
    # Two members, as `cat a.gz b.gz` makes.
    "a.jsonl.gz": lambda path: path.write_bytes(gzip.compress(jsonl()[:9999]) + gzip.compress(jsonl()[9999:])),
    "a.zst": lambda path: path.write_bytes(pyarrow.compress(jsonl(), "zstd", asbytes=True)),
    "a.parquet": write_parquet,
}


@pytest.fixture(params=WRITERS)
def file(request, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 7)
    WRITERS[request.param](tmp_path / request.param)
    return str(tmp_path / request.param)


def documents_of(found) -> list:
    return [document for block in found for document in documents(block)]


def texts_of(found) -> list[str]:
    return [document.text for document in documents_of(found)]


def test_all_texts_in_order(file):
    found = list(read_blocks([file]))
    assert texts_of(found) == TEXTS and len(found) > 5
    assert sum(block.size for block in found) == os.path.getsize(file)
    assert [document.line for document in read_documents([file])] == list(range(1, len(TEXTS) + 1))


def test_reading_goes_on_behind_any_block(file):
    found = list(read_blocks([file, file]))
    expected = documents_of(found)
    for number, block in enumerate(found):
        rest = documents_of(read_blocks([file, file], start=block.next))
        assert rest == expected[len(documents_of(found[: number + 1])) :]


def test_a_txt_is_one_document_of_any_size(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 10)
    (tmp_path / "a.txt").write_bytes("é\r\n".encode() * 50)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"two\nlines"))
    (tmp_path / "c.txt").write_bytes(b"")
    files = [str(tmp_path / name) for name in ("a.txt", "b.txt.gz", "c.txt")]
    found = list(read_blocks(files))
    assert texts_of(found) == ["é\r\n" * 50, "two\nlines", ""]
    assert [len(list(read_blocks(files, start=block.next))) for block in found] == [2, 1, 0]


def test_lines_of_any_length_and_end(tmp_path, monkeypatch):
    for seed in range(10):
        source = random.Random(seed)
        monkeypatch.setattr(blocks, "BLOCK_BYTES", source.randrange(1, 60))
        full = [b'{"text": "' + b"x" * source.randrange(100) + b'"}\n' for _ in range(20)]
        content = b"".join(source.choices([b"\n", b"\r\n", b" \n", *full], k=50))
        content += source.choice([b"", b'{"text": "no line end"}'])
        (tmp_path / "a.jsonl").write_bytes(content)
        found = list(read_blocks([str(tmp_path / "a.jsonl")]))
        assert b"".join(block.content for block in found) == content, seed
        expected = [(i, json.loads(line)["text"]) for i, line in enumerate(content.split(b"\n"), 1) if line.strip()]
        assert [(document.line, document.text) for document in documents_of(found)] == expected, seed


@pytest.fixture
def stdin(monkeypatch):
    def give(content: bytes):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


def test_stdin_goes_on_only_with_the_same_text(stdin, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2000)
    stdin(jsonl())
    found = list(read_blocks(["-"]))
    assert texts_of(found) == TEXTS
    place = found[3].next
    stdin(jsonl())
    rest = list(read_blocks(["-"], start=place))
    assert (documents_of(rest), rest[-1].next) == (documents_of(found[4:]), found[-1].next)
    for other in (jsonl().replace(b"text 1 ", b"text 2 "), jsonl()[: place.offset - 1]):
        stdin(other)
        with pytest.raises(DataError, match="stdin: not the text that was read before the interruption"):
            list(read_blocks(["-"], start=place))


def test_an_endless_line_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "LONGEST_LINE_BYTES", 3 << 20)
    (tmp_path / "a.jsonl").write_bytes(b"{}\n" + b"x" * (5 << 20))
    with pytest.raises(DataError, match="a.jsonl:2: more than 3 MiB without an end"):
        list(read_blocks([str(tmp_path / "a.jsonl")]))


def repeated(name: str, content: bytes, times: int) -> bytes:
    """A packed file of content again and again: a member of gzip, or a frame of zstd, for each."""
    codec = "gzip" if name.endswith(".gz") else "zstd"
    return pyarrow.compress(content, codec, asbytes=True) * times


@pytest.mark.parametrize("name", ["bomb.zst", pytest.param("bomb.jsonl.gz", marks=pytest.mark.long)])
def test_a_bomb_is_read_in_bounded_memory(tokenizer_dir, tmp_path, name):
    """256 MiB of one line are refused at 32 MiB; 256 MiB of short lines are read in a few."""
    bomb = tmp_path / name
    bomb.write_bytes(repeated(name, b"a" * (64 << 20), 4))
    words = ["--workers", "0", "--tokenizer", tokenizer_dir, "--output", tmp_path / "out", "--input", bomb]
    words = [str(word) for word in words]
    limit = "blocks.LONGEST_LINE_BYTES = 32 << 20"
    said, peak = outcome(f"{limit}; sys.argv[1:] = {words}; guarded(tokenize.main)")
    assert f"error: {bomb}:1: more than 32 MiB without an end, too long for one document" in said
    assert peak < 200 << 20
    bomb.write_bytes(repeated(name, b"a\n" * (4 << 20), 32))
    said, peak = outcome(f"print(sum(len(one.content) for one in blocks.read_blocks(['{bomb}'])), file=sys.stderr)")
    assert said == f"{256 << 20}\n" and peak < 120 << 20


def outcome(statement: str) -> tuple[str, int]:
    """What a process says on stderr that runs this, and its largest memory as Linux counts it."""
    imports = "import sys\nfrom data_tools import tokenize\nfrom data_tools.cli import guarded\n"
    imports += "from data_tools.text import blocks"
    code = f"{imports}\n{statement}\nprint(open('/proc/self/status').read())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stderr, int(re.search(r"VmHWM:\s+(\d+) kB", done.stdout)[1]) * 1024


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.zst", "a.parquet"])
def test_damaged_files_are_named(tmp_path, name):
    path = tmp_path / name
    WRITERS[name](path)
    for content in (path.read_bytes()[:-300], b"nonsense" * 100):
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"{name} cannot be read.*Copy or make it again"):
            list(read_blocks([str(path)]))
    path.write_bytes(b"")
    reason = "cannot be read" if name.endswith("parquet") else "has 0 bytes, which no packed file has: a copy that fail"
    with pytest.raises(DataError, match=f"{name} {reason}"):
        list(read_blocks([str(path)]))


def test_parquet_without_texts(tmp_path):
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"id": [1], "body": ["x"]}), path)
    for key in ("text", "id"):
        with pytest.raises(DataError, match=rf"no column of texts '{key}'; there are id \(int64\), body \(string\)"):
            list(read_blocks([str(path)], key))
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a", None, "c"]}), path)
    found = documents_of(read_blocks([str(path)]))
    assert found[1] == BadLine(f"{path}:2: no text, the row is null. Mend or remove the row.")
    assert [found[0].text, found[2].text] == ["a", "c"]


def test_kinds():
    names = ["-", "a.jsonl", "a.json.gz", "a.zst", "a.gz", "a.txt.zst", "a.parquet", "a.parquet.gz", "a.csv", "a"]
    expected = ["lines"] * 5 + ["text", "parquet", None, None, None]
    assert [kind_of(name) for name in names] == expected


def test_files_of_folders_and_patterns(tmp_path, capsys):
    hidden, others = (".e.jsonl", ".git/f.txt"), ("notes.md", "g.JSONL", "h.csv", "i.jsonl.bz2", "sub/j.csv", "k.xz")
    for name in ("b.jsonl", "a.txt", "sub/c.parquet", "sub/d.gz", *hidden, *others):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")

    def found(*inputs):
        return [str(file).removeprefix(f"{tmp_path}/") for file in find_files(inputs)]

    assert found(tmp_path) == ["a.txt", "b.jsonl", "sub/c.parquet", "sub/d.gz"]
    known = ".jsonl, .json, .txt, .parquet, .gz, .zst"
    names = "g.JSONL, h.csv, i.jsonl.bz2, k.xz, notes.md, ..."
    told = f"left out of {tmp_path}: 6 files of another kind (known are {known}): {names}\n"
    assert capsys.readouterr().err == told
    assert found(f"{tmp_path}/*.jsonl", f"{tmp_path}/**/*.gz") == ["b.jsonl", "sub/d.gz"]
    with pytest.raises(DataError, match=r"notes\.md: unknown kind of file"):
        found(tmp_path / "notes.md")
    with pytest.raises(DataError, match=r"x\.jsonl is not a file, .* Name files that end in .jsonl, .json, .txt"):
        found(tmp_path / "x.jsonl")
    with pytest.raises(DataError, match=r"\*\.zst is not a file, and no folder or pattern with files"):
        found(f"{tmp_path}/*.zst")
    with pytest.raises(DataError, match="give it alone"):
        found("-", tmp_path)


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
        (b'{"text": "a", "text": "b"}', r"a\.jsonl:2: the key 'text' twice in an object\. Mend or remove the line"),
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
    pyarrow.parquet.write_table(pyarrow.table({"text": column}), tmp_path / "a.parquet")
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

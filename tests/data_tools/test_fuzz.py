"""Every reader of the data tools, with made-up and damaged files: it reads, or refuses and names the file."""

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import parquet

from data_tools.dialogues.chat_template import ChatTemplate, directory_template
from data_tools.dialogues.datasets import Columns, survey
from data_tools.dialogues.messages import plain_dialogue
from data_tools.dialogues.questions import read_questions
from data_tools.formats.benchmarks.files import find_form, read_benchmark
from data_tools.formats.benchmarks.published import FORMS as BENCHMARKS
from data_tools.formats.errors import DataError
from data_tools.formats.tokens.indexed import HEADER, MAGIC, IndexedDataset, IndexedWriter
from data_tools.formats.tokens.resumable import ResumableWriter
from data_tools.formats.tokens.summary import check_hash, read_summary, write_summary
from data_tools.preferences.forms import FORMS, PreferenceColumns
from data_tools.text.sources import read_documents
from tests.fuzzing import FEW_AND_MANY, cases, damaged, dumped, texts, values

FRAGMENTS = (
    *("{% for m in messages %}", "{% endfor %}", "{{ m.content }}", "{{ m['role'] }}"),
    *("{% if loop.last %}", "{% endif %}", "{{ m.content | upper }}"),
    *("{{ messages|tojson }}", "{% generation %}", "{% endgeneration %}", "{% set x = 'a' * 99999 %}", "{{ x }}"),
    *("{{ raise_exception(m) }}", "{{ ''.join.__globals__ }}", "{% include 'x' %}", "{% extends 'y' %}", "{{ 1 / 0 }}"),
    *("{{ range(9 ** 9) }}", "{{ self }}", "{{ m.content | trim | xmlattr }}", "{{ '%9999999999d' % 1 }}"),
    *("{{ lipsum(9) }}", "text", "\0", "\ud800", "{{", "%}", "{#"),
)
PREFERENCE_KEYS = (
    *("prompt", "chosen", "rejected", "completion", "label", "src", "tgt", "response", "sort", "instruction"),
    *("conversations", "system", "history", "input"),
)
KEYS = (
    *("src", "tgt", "content", "summary", "instruction", "input", "output", "history", "system", "messages"),
    *("conversations", "role", "from", "value", "text"),
)


def rows() -> st.SearchStrategy:
    """Objects with the keys of dialogues, and values that fit or do not."""
    said = st.sampled_from(["user", "assistant", "gpt"]) | values()
    message = st.dictionaries(st.sampled_from(KEYS), said, max_size=4)
    pair = st.fixed_dictionaries({"src": texts(), "tgt": texts()})
    chat = st.fixed_dictionaries({"messages": st.lists(message, max_size=4)})
    return st.dictionaries(st.sampled_from(KEYS), values() | st.lists(message, max_size=3), max_size=5) | pair | chat


def lines() -> st.SearchStrategy[bytes]:
    """A file of JSON lines, some of which are none."""
    line = rows().map(dumped) | st.binary(max_size=30) | values().map(dumped)
    whole = st.lists(line, max_size=6)
    return st.tuples(st.sampled_from([b"", b"\xef\xbb\xbf"]), whole).map(lambda both: both[0] + b"\n".join(both[1]))


def try_all(count: int, file: Path, contents: st.SearchStrategy[bytes], *readers: Callable[[Path], None]) -> None:
    """Have each reader read the file with so many contents, or refuse it by its name (a corpus has two suffixes)."""

    @cases(count)
    @given(contents)
    def each(content: bytes):
        file.write_bytes(content)
        for read in readers:
            try:
                read(file)
            except DataError as error:
                assert str(file.with_suffix("")) in str(error) and str(error).encode()

    each()


@FEW_AND_MANY
def test_dialogues(tmp_path, count):
    def read(file: Path) -> None:
        found = survey(str(file), ("train",), Columns(), max_broken_rows=100)
        for dialogue in (one for source in found.train for rows in source for one in rows.entries):
            assert all(one.text or one.tool_calls for one in dialogue.messages if one.role == "assistant")
            "".join(message.text for message in dialogue.messages).encode()

    contents = lines() | st.lists(rows(), max_size=4).map(dumped)
    try_all(count, tmp_path / "train.json", contents, read, read_questions)


def preferences() -> st.SearchStrategy:
    """Objects with the keys of preferences, of each form, and values that fit or do not."""
    message = st.dictionaries(
        st.sampled_from(KEYS), st.sampled_from(["user", "assistant", "gpt"]) | texts(), max_size=3
    )
    chat = st.lists(
        st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": texts()}), max_size=4
    )
    said = texts() | chat | st.lists(message | texts(), max_size=3) | values()
    forms = [form.keys for form in FORMS]
    whole = st.sampled_from(forms).flatmap(lambda keys: st.fixed_dictionaries(dict.fromkeys(keys, said)))
    return whole | st.dictionaries(st.sampled_from(PREFERENCE_KEYS), said, max_size=5)


@FEW_AND_MANY
def test_preferences(tmp_path, count):
    def read(file: Path) -> None:
        for preference in PreferenceColumns().read(file).entries:
            assert preference.responses and all(
                response.text.strip() or response.tool_calls for response in preference.responses
            )
            repr(preference.dialogues()).encode()

    contents = st.lists(preferences(), max_size=4).map(lambda rows: b"\n".join(map(dumped, rows)))
    try_all(count, tmp_path / "train.json", contents, read)


def questions() -> st.SearchStrategy:
    """Objects with the keys of benchmarks, and values that fit or do not; and files as those of SQuAD."""
    answers = st.fixed_dictionaries({"text": st.lists(texts(), max_size=2)}) | st.lists(texts(), max_size=2)
    said = texts() | st.lists(texts(), max_size=4) | answers | st.sampled_from(["0", 1, "A", "#### 7"]) | values()
    keys = st.sampled_from([form.keys for form in BENCHMARKS.values()])
    whole = keys.flatmap(lambda names: st.fixed_dictionaries(dict.fromkeys(names, said)))
    asked = st.lists(st.fixed_dictionaries({"question": texts(), "answers": said}) | values(), max_size=2)
    paragraphs = st.lists(st.fixed_dictionaries({"context": texts(), "qas": asked}) | values(), max_size=2)
    article = st.fixed_dictionaries({"title": said, "paragraphs": paragraphs})
    return whole | st.fixed_dictionaries({"data": st.lists(article, max_size=2)})


@FEW_AND_MANY
def test_benchmarks(tmp_path, count):
    def read(file: Path) -> None:
        found = read_benchmark([file], find_form([file]))
        assert found and json.dumps(found, ensure_ascii=False).encode()

    contents = st.lists(questions(), max_size=3).map(lambda rows: b"\n".join(map(dumped, rows)))
    try_all(count, tmp_path / "test.json", contents, read)


def table(*column) -> bytes:
    target = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": pyarrow.array(*column)}), target, row_group_size=30)
    return target.getvalue()


LINES = [f"line {number} " * 30 for number in range(100)]
PLAIN = b"".join(json.dumps({"text": line}).encode() + b"\n" for line in LINES)
TYPES = st.recursive(
    st.sampled_from([pyarrow.string(), pyarrow.large_string(), pyarrow.binary(), pyarrow.int32(), pyarrow.bool_()]),
    lambda one: one.map(pyarrow.list_) | one.map(lambda kind: pyarrow.struct([("a", kind)])),
)


@FEW_AND_MANY
@pytest.mark.parametrize(
    ("name", "contents"),
    [
        ("a.jsonl", lines()),
        ("a.txt", lines()),
        ("a.jsonl.gz", lines().map(gzip.compress) | damaged(gzip.compress(PLAIN))),
        ("a.jsonl.zst", damaged(pyarrow.compress(PLAIN, "zstd", asbytes=True))),
        ("a.parquet", damaged(table(LINES)) | st.builds(table, st.sampled_from([[], [None], [None] * 3]), TYPES)),
    ],
    ids=["jsonl", "txt", "gz", "zst", "parquet"],
)
def test_texts(tmp_path, count, name, contents):
    def read(file: Path) -> None:
        for document in read_documents([str(file)], max_bad_lines=3):
            document.text.encode()

    try_all(count, tmp_path / name, contents, read)


@pytest.fixture
def corpus(tmp_path):
    """100 documents of 0 to 9 tokens, with a summary."""
    draw = np.random.default_rng(1)
    with IndexedWriter(tmp_path / "corpus", vocab_size=1000) as writer:
        for size in draw.integers(0, 10, 100):
            writer.add_document(draw.integers(0, 1000, size))
    write_summary(tmp_path / "corpus", {})
    return tmp_path / "corpus"


@FEW_AND_MANY
def test_any_damage_to_a_corpus_is_found(corpus, count):
    files = {suffix: bytearray(corpus.with_suffix(suffix).read_bytes()) for suffix in (".idx", ".bin")}
    places = [(suffix, place) for suffix, content in files.items() for place in range(len(content))]

    @cases(2 * count)
    @given(st.sampled_from(places), st.integers(1, 255))
    def verify(at: tuple, change: int):
        suffix, place = at
        damage = files[suffix].copy()
        damage[place] ^= change
        corpus.with_suffix(suffix).write_bytes(damage)
        with pytest.raises(DataError):
            check_hash(IndexedDataset(corpus))
        corpus.with_suffix(suffix).write_bytes(files[suffix])

    verify()


@FEW_AND_MANY
def test_indexes(corpus, count):
    def read(file: Path) -> None:
        found = IndexedDataset(file.with_suffix(""))
        assert sum(document.size for document in found) == found.tokens.size

    numbers = st.integers(-(2**63), 2**64 - 1).map(lambda number: (number % 2**64).to_bytes(8, "little"))
    headers = st.tuples(st.binary(min_size=9, max_size=9), numbers, numbers).map(b"".join)
    made = headers.map(lambda rest: (MAGIC + rest)[: HEADER.size] + b"\0" * 64)
    index = corpus.with_suffix(".idx")
    try_all(count, index, damaged(index.read_bytes()) | made, read)


@FEW_AND_MANY
def test_summaries_and_records(corpus, tmp_path, count):
    summary = tmp_path / "corpus.summary.json"
    whole = json.loads(summary.read_text())
    record, found = tmp_path / "b.progress.json", IndexedDataset(corpus)
    with ResumableWriter(tmp_path / "b", np.uint16, {"input": 1}) as writer:
        writer.append(np.arange(5, dtype=np.uint16), np.array([2, 3]))
        writer.commit({"place": 1})
    committed = record.read_bytes()
    without_checksum = json.loads(committed)
    del without_checksum["record_sha256"]

    @cases(count)
    @given(st.dictionaries(st.sampled_from([*whole, "x"]), values(), max_size=3).map(dumped), damaged(committed))
    @example(b"{}", dumped(without_checksum))
    def read(change: bytes, broken: bytes):
        summary.write_bytes(change if len(change) > 200 else json.dumps(whole | json.loads(change)).encode())
        told = read_summary(found)
        assert told is None or told.content_key == found.content_key() and isinstance(told.largest_id, int)
        record.write_bytes(broken)
        try:
            same = json.loads(broken) == json.loads(committed)
        except ValueError:
            same = False
        if not same:
            with pytest.raises(DataError, match=r"b\.progress\.json is damaged, or .*\. Begin anew: --restart"):
                ResumableWriter(tmp_path / "b", np.uint16, {"input": 1}).__enter__()
        assert (tmp_path / "b.bin.partial").stat().st_size == 10

    read()


@FEW_AND_MANY
def test_configurations_of_tokenizers(tmp_path, count):
    def read(file: Path) -> None:
        template = directory_template(file.parent)
        assert template is None or isinstance(template.source, str)

    keys = st.sampled_from(["chat_template", "eos_token", "bos_token", "trained_with_chat_template", "name"])
    contents = st.dictionaries(keys, values(), max_size=4).map(dumped) | st.binary(max_size=40)
    try_all(count, tmp_path / "tokenizer_config.json", contents, read)


@pytest.mark.parametrize(
    "count", [6, pytest.param(40, marks=pytest.mark.long), pytest.param(200, marks=pytest.mark.nightly)]
)
def test_chat_templates(count):
    dialogue = plain_dialogue((("why?", "so."), ("and?", "no.")), "scene")

    @cases(count)
    @given(st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join))
    def render(source: str):
        try:
            *_, turns = ChatTemplate(source, "mine").render(dialogue).samples
        except DataError as error:
            assert str(error).startswith("mine: ")
        else:
            assert len(turns) in (1, 2) and "no." in "".join(turns[-1])

    render()

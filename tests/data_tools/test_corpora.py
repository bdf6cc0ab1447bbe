"""Commands on token files: merge, split, blend, inspect, and the summary beside a corpus."""

import io
import json
import re

import numpy as np
import pytest
from rich.console import Console

from data_tools.blend import plan_blend
from data_tools.formats.errors import DataError
from data_tools.formats.tokens.blend import open_splits
from data_tools.formats.tokens.indexed import IndexedDataset
from data_tools.formats.tokens.summary import check_hash, read_summary, summary_path, write_summary
from data_tools.inspect import describe, length_histogram, packing
from data_tools.merge import merge_corpora
from data_tools.split import split_corpus
from data_tools.text.encoders import load_encoder
from data_tools.tokenize import tokenize_files


@pytest.fixture
def corpus(text, tokenizer_dir, tmp_path):
    tokenize_files([str(text / "train.jsonl")], tokenizer_dir, tmp_path / "corpus", workers=0)
    return str(tmp_path / "corpus")


def documents_of(prefix) -> list[list[int]]:
    return [ids.tolist() for ids in IndexedDataset(prefix)]


def test_merge(write, documents, tmp_path, monkeypatch):
    monkeypatch.setattr("data_tools.merge.DOCUMENTS_AT_ONCE", 7)
    a, b, wide = write("a", documents), write("b", documents[:3]), write("wide", [[70_000, 1]], vocab_size=100_000)
    merge_corpora([a, b], tmp_path / "ab")
    assert documents_of(tmp_path / "ab") == documents_of(a) + documents_of(b)
    assert IndexedDataset(tmp_path / "ab").dtype == np.uint16
    merge_corpora([a, wide], tmp_path / "aw")
    assert documents_of(tmp_path / "aw") == [*documents_of(a), [70_000, 1]]
    assert read_summary(IndexedDataset(tmp_path / "aw")).largest_id == 70_000
    with pytest.raises(DataError, match="a is one of those to be merged"):
        merge_corpora([a, b], a)
    write_summary(a, {"tokenizer": "1"}), write_summary(b, {"tokenizer": "2"})
    with pytest.raises(DataError, match="a and .*b were made with different tokenizers"):
        merge_corpora([a, b], tmp_path / "ab")


def test_split_goes_by_content(write, tmp_path):
    random = np.random.default_rng(0)
    documents = [random.integers(0, 300, 8) for _ in range(2000)]
    documents += documents[:50]
    done = split_corpus(write("a", documents), tmp_path / "s", "80,20")
    sides = {name: {tuple(ids) for ids in documents_of(tmp_path / "s" / name)} for name in ("train", "valid")}
    assert sum(done.values()) == 2050 and not sides["train"] & sides["valid"]
    assert 0.18 < done[f"{tmp_path}/s/valid"] / 2050 < 0.22
    split_corpus(write("b", documents[:300]), tmp_path / "t", "80,20")
    assert {tuple(ids) for ids in documents_of(tmp_path / "t" / "valid")} <= sides["valid"]
    with pytest.raises(DataError, match="no document of 3 goes to valid"):
        split_corpus(write("c", documents[:3]), tmp_path / "u", "999,1")
    assert not list((tmp_path / "u").iterdir())


def test_plan_of_a_blend_is_what_training_opens(write, documents, tmp_path):
    a, b = write("a", documents * 5), write("b", documents)
    named = f"3 {a} 1 {b}"
    train, _, _ = open_splits(named, "8,2", 16, 0, tmp_path / "cache", wanted=("train",))
    sources, epoch = plan_blend(named, 16, "8,2", tokens=None)
    assert epoch == len(train)
    assert [source.used for source in sources] == train.samples_used.tolist()
    assert [source.samples for source in sources] == [len(dataset) for dataset in train.datasets]
    assert [source.share for source in sources] == [0.75, 0.25]
    longer, _ = plan_blend(named, 16, "8,2", tokens=2.5 * epoch * 16)
    for one, many in zip(sources, longer, strict=True):
        assert many.used == pytest.approx(2.5 * one.used, abs=1)
        assert many.epochs == pytest.approx(2.5 * one.epochs, abs=0.01)
    few, _ = plan_blend(named, 16, "8,2", tokens=3 * 16 + 15)
    assert sum(source.used for source in few) == 3  # a sample that is not whole is none


def test_inspect_tells_what_is_there(corpus, sources, tokenizer_dir):
    assert length_histogram(np.array([1, 2, 3, 4, 7, 8, 0])) == [(0, 0, 1), (1, 1, 1), (2, 3, 2), (4, 7, 2), (8, 15, 1)]
    assert length_histogram(np.array([1023, 1024])) == [(512, 1023, 1), (1024, 2047, 1)]
    dataset, encoder = IndexedDataset(corpus), load_encoder(tokenizer_dir)
    packed = packing(dataset, encoder, seed=0)
    assert packed.size == sum(len(text.encode()) for text in sources)
    assert packed.tokens == dataset.tokens.size
    console = Console(file=io.StringIO(), width=200)
    describe(dataset, encoder, shown=2, shown_tokens=20, seed=3, console=console)
    told = console.file.getvalue()
    assert f"{len(sources)} documents, {dataset.tokens.size:,} tokens, uint16" in told
    assert f"{packed.size / packed.tokens:.2f} bytes a token" in told
    shown = re.findall(r"document (\d+), ", told)
    assert len(shown) == 2
    for number in shown:
        text = encoder.decode([dataset[int(number)][:20].tolist()])[0]
        assert f"\n{text} ...\n" in told


def test_a_summary_of_other_content_counts_for_nothing(write, corpus):
    dataset = IndexedDataset(corpus)
    summary = read_summary(dataset)
    assert (summary.documents, summary.tokens) == (len(dataset), dataset.tokens.size)
    assert summary.largest_id == dataset.tokens.max()
    made = json.loads(summary_path(corpus).read_text())["made"]
    assert made["eos"] is True and made["vocab_size"] == 1000 and made["input"][0][0] == "train.jsonl"
    other = write("other", [[1, 2, 3]])
    summary_path(other).write_bytes(summary_path(corpus).read_bytes())
    assert read_summary(IndexedDataset(other)) is None
    with pytest.raises(DataError, match="other: not what .*other.summary.json was written for"):
        check_hash(IndexedDataset(other))
    for content in ("", "[]", '{"documents": 3}'):
        summary_path(other).write_text(content)
        assert read_summary(IndexedDataset(other)) is None
    summary_path(other).unlink()
    stored = np.memmap(f"{corpus}.bin", dtype=np.uint16, mode="r+")
    stored[5] ^= 1
    stored.flush()
    for check in (check_hash, lambda damaged: merge_corpora([other, damaged.prefix], f"{corpus}-merged")):
        with pytest.raises(DataError, match=f"{corpus}: not what .* changed since, or damaged"):
            check(IndexedDataset(corpus))


def test_training_trusts_a_summary_and_checks_where_there_is_none(write, tmp_path, monkeypatch):
    prefix = write("a", [[1] * 40, [2, 400]], vocab_size=500)
    read = []
    check = IndexedDataset.check_vocabulary
    monkeypatch.setattr(IndexedDataset, "check_vocabulary", lambda self, size: (read.append(size), check(self, size)))
    open_splits(prefix, "1", 16, 0, tmp_path / "cache", 401, wanted=("train",))
    write_summary(prefix, {})
    open_splits(prefix, "1", 16, 0, tmp_path / "cache", 401, wanted=("train",))
    assert read == [401]
    with pytest.raises(DataError, match="token id 400 in document 1"):
        open_splits(prefix, "1", 16, 0, tmp_path / "cache", 400, wanted=("train",))

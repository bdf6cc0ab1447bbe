"""Splits, the sample index against a plain one, and its cache."""

import multiprocessing
import os
import signal
import time

import numpy as np
import pytest

from data_tools.formats.errors import DataError
from data_tools.formats.tokens import samples
from data_tools.formats.tokens.indexed import IndexedDataset
from data_tools.formats.tokens.samples import SampleDataset, SampleIndex, Split, build_sample_index, split_boundaries


@pytest.mark.parametrize(
    "split, documents, boundaries",
    [
        ("949,50,1", 1000, [0, 949, 999, 1000]),
        ("949,50,1", 100, [0, 95, 100, 100]),
        ("949/50/1", 452, [0, 429, 452, 452]),
        ("1", 7, [0, 7, 7, 7]),
        ("90,10", 15, [0, 13, 15, 15]),
        ("1,1,1", 5, [0, 1, 3, 5]),  # rounds up to 6: the surplus comes off train
        ("0,1,1", 3, [0, 0, 1, 3]),
    ],
)
def test_split_boundaries(split, documents, boundaries):
    assert split_boundaries(split, documents) == boundaries


@pytest.mark.parametrize("split", ["", "a,b", "1,2,3,4", "0,0,0", "5,-1,0", "nan", "inf,1"])
def test_a_split_that_is_none(split):
    with pytest.raises(DataError, match="expected one to three shares for train, valid, test"):
        split_boundaries(split, 10)


def plain_sample_index(sizes, sequence_length):
    """Token k * sequence_length of the concatenation begins sample k."""
    owners = [(document, offset) for document, size in enumerate(sizes) for offset in range(size)]
    return owners[::sequence_length][: (len(owners) - 1) // sequence_length + 1]


def test_sample_index_equals_the_plain_one_and_prints_nothing(capfd):
    for seed in range(20):
        random = np.random.default_rng(seed)
        sizes = random.integers(0, random.integers(2, 60), 50).astype(np.int32)
        sequence_length = int(random.integers(1, 40))
        index = build_sample_index(sizes, sequence_length)
        assert index.dtype == np.int32
        assert [tuple(row) for row in index.tolist()] == plain_sample_index(sizes, sequence_length), seed
    os.write(1, b"kept\n")
    assert capfd.readouterr().out == "kept\n"


@pytest.mark.parametrize("tokens, count", [(1, 0), (4, 0), (5, 1), (8, 1), (9, 2)])
def test_the_last_label_is_a_token_beyond_the_inputs(write, tokens, count):
    split = Split(IndexedDataset(write("a", [[7] * tokens])), "train", 0, 1)
    assert split.count_samples(4) == count


def test_every_token_is_a_label_once(write, documents, tmp_path):
    """And samples are views until they are written into a batch."""
    corpus = IndexedDataset(write("a", documents))
    dataset = SampleDataset(Split(corpus, "train", 20, 180), 16, seed=3, cache_dir=tmp_path / "cache")
    order = np.random.RandomState(3).permutation(np.arange(20, 180))
    stream = np.concatenate([documents[i] for i in order])
    assert len(dataset) == (stream.size - 1) // 16
    assert all(dataset[0][key].dtype == np.int64 and dataset[0][key].shape == (16,) for key in ("input_ids", "labels"))
    inputs = np.concatenate([sample["input_ids"] for sample in dataset])
    labels = np.concatenate([sample["labels"] for sample in dataset])
    assert inputs.tolist() == stream[: inputs.size].tolist()
    assert labels.tolist() == stream[1 : labels.size + 1].tolist()
    with pytest.raises(IndexError):
        dataset[-1]
    batch = np.full((2, len(dataset), 16), -1)
    for i, sample in enumerate(dataset):
        assert all(np.shares_memory(piece, corpus.tokens) for piece in sample.pieces)
        sample.write(batch[0, i], batch[1, i])
    assert batch.reshape(2, -1).tolist() == [inputs.tolist(), labels.tolist()]
    assert max(len(sample.pieces) for sample in dataset) > 2 > 1 == min(len(sample.pieces) for sample in dataset)


def test_a_split_without_a_sample_says_what_it_has(write, documents, tmp_path):
    tokens = sum(map(len, documents[198:]))
    split = Split(IndexedDataset(write("a", documents)), "test", 198, 200)
    with pytest.raises(
        DataError, match=rf"a: the test split has 2 of 200 documents with {tokens} tokens, one sample n"
    ):
        SampleDataset(split, 64, seed=0, cache_dir=tmp_path)


def index_of(prefix, cache, sequence_length=16, seed=0, first=0, last=200):
    return SampleIndex(Split(IndexedDataset(prefix), "train", first, last), sequence_length, seed, cache)


@pytest.fixture
def builds(monkeypatch):
    """The list of builds that were not answered by the cache."""
    calls = []

    def build(sizes, sequence_length):
        calls.append(sequence_length)
        return build_sample_index(sizes, sequence_length)

    monkeypatch.setattr(samples, "build_sample_index", build)
    return calls


def test_an_index_is_built_once_for_each_key(write, documents, tmp_path, builds, monkeypatch, capsys):
    """A large one says what it does."""
    monkeypatch.setattr(samples, "ANNOUNCED_DOCUMENTS", 200)
    prefix = write("a", documents)
    for options in ({}, {"seed": 1}, {"sequence_length": 15}, {"first": 1}, {"last": 199}):
        for _ in range(2):
            index_of(prefix, tmp_path / "cache", **options)
    assert len(builds) == len(list((tmp_path / "cache").iterdir())) == 5
    steps = [line.rpartition(": ")[2] for line in capsys.readouterr().err.splitlines()]
    assert steps == ["shuffling the documents", "cutting them into samples", "writing"] * 3


def test_a_stale_index_is_not_used(write, documents, tmp_path, builds):
    """The same prefix written anew: other documents, or other ids in documents of the same sizes."""
    cache = tmp_path / "cache"
    index_of(write("a", documents), cache)
    reordered = documents[::-1]
    index = index_of(write("a", reordered), cache)
    sizes = [len(reordered[i]) for i in index.order]
    assert [tuple(row) for row in index.starts.tolist()] == plain_sample_index(sizes, 16)
    index_of(write("a", [299 - document for document in documents]), cache)
    assert len(builds) == 3


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty"])
def test_a_damaged_index_is_built_again(write, documents, tmp_path, builds, damage):
    prefix = write("a", documents)
    before = index_of(prefix, tmp_path / "cache").starts.tolist()
    [path] = (tmp_path / "cache").iterdir()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    os.remove(path)
    path.write_bytes({"flip": content, "truncate": content[:-4], "empty": b""}[damage])
    assert index_of(prefix, tmp_path / "cache").starts.tolist() == before
    assert len(builds) == 2


def test_of_processes_that_want_it_at_once_one_builds_and_one_that_dies_is_replaced(write, documents, tmp_path):
    prefix = write("a", documents)
    context = multiprocessing.get_context("fork")
    found, built = context.Queue(), context.Queue()

    def build_and_report(build):
        samples.build_sample_index = build
        found.put(index_of(prefix, tmp_path / "cache").starts.tolist())

    def slowly(sizes, sequence_length):
        built.put(os.getpid())
        time.sleep(0.3)
        return build_sample_index(sizes, sequence_length)

    dying = context.Process(target=build_and_report, args=[lambda *_: os.kill(os.getpid(), signal.SIGKILL)])
    dying.start()
    dying.join(30)
    assert dying.exitcode == -signal.SIGKILL
    processes = [context.Process(target=build_and_report, args=[slowly]) for _ in range(4)]
    for process in processes:
        process.start()
    results = [found.get(timeout=30) for _ in processes]
    for process in processes:
        process.join()
    assert results == [results[0]] * 4
    assert isinstance(built.get(timeout=30), int) and built.empty()
    assert len(list((tmp_path / "cache").iterdir())) == 1

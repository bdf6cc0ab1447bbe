"""What --input_dir may name, and the shares of a blend."""

from itertools import islice

import numpy as np
import pytest

from data_tools.formats.blended import BlendedDataset, deal, whole_numbers
from data_tools.formats.errors import DataError
from data_tools.formats.tokens.blend import find_corpora, open_splits


def test_what_may_be_named(write, documents, tmp_path):
    """A folder is all its pairs; a prefix stands with or without a suffix; weights and prefixes in turn."""
    b, a = write("data/b", documents), write("data/a.v1", documents)
    assert find_corpora(tmp_path / "data") == [(None, a), (None, b)]
    assert find_corpora(b) == find_corpora(f"{b}.bin") == find_corpora(f"{b}.idx") == [(None, b)]
    for form in ("0.7 {a} 0.3 {b}", "0.7,{a},0.3,{b}", " 0.7, {a}, 0.3, {b} "):
        assert find_corpora(form.format(a=a, b=b)) == [(0.7, a), (0.3, b)]
    prefix = write("my data/a", documents)
    assert find_corpora(tmp_path / "my data") == [(None, prefix)]


def test_what_may_not_be_named(write, documents, tmp_path):
    (tmp_path / "my data").mkdir()
    write("data/a", documents), write("data/b", documents)
    command = r"looked for .* .venv/bin/python -m data_tools.tokenize .*"
    for named, message in [
        (tmp_path / "x", f"no data at {tmp_path}/x: {command}/x/corpus"),
        (tmp_path, f"no data in {tmp_path}: looked for pairs X.bin and X.idx"),
        (tmp_path / "my data", f"DIR --output '{tmp_path}/my data/corpus'$"),  # can be pasted
        (f"0.5 {tmp_path}/data 0.5 {tmp_path}/data/a", "data has 2 corpora, and one weight"),
        *((one, "expected one path, or weights above 0 and paths in turn")
          for one in ("a b", "0.5 a 0.5", "0 a 1 b", "-1 a 2 b", "a 0.5 b 0.5", "nan a 1 b")),
    ]:  # fmt: skip
        with pytest.raises(DataError, match=message):
            find_corpora(named)


class Numbered:
    """Sample i of dataset `name` is (name, i)."""

    def __init__(self, name, length):
        self.name = name
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        assert i < self.length
        return self.name, i


def blended(lengths, weights=None) -> BlendedDataset:
    return BlendedDataset([Numbered(name, length) for name, length in enumerate(lengths)], weights)


def ahead_of_share(taken, weights) -> np.ndarray:
    """int [samples, datasets]: how far each is ahead of its share after each sample, in samples times the weights' sum.

    taken: the number of the dataset that gave each sample.
    """
    counts = np.cumsum(np.eye(len(weights), dtype=np.int64)[taken], axis=0)
    return counts * sum(weights) - np.arange(1, len(taken) + 1)[:, None] * np.array(weights)


@pytest.mark.parametrize("count", [2, 3, 5, 12, 60])
def test_shares_are_exact_at_every_length(count):
    """None is a whole sample ahead or behind, whatever the weights: alike, or from 1 to a million."""
    random = np.random.default_rng(count)
    for spread in (0, 1, 6):
        weights = [int(10**power) for power in random.uniform(0, spread, count)]
        taken = np.fromiter(islice(deal(weights), 5000), dtype=int)
        assert abs(ahead_of_share(taken, weights)).max() < sum(weights)


def test_weights_are_what_is_written_and_a_pattern_that_repeats_is_one_long_deal():
    for weights, whole in [([0.7, 0.2, 0.1], [7, 2, 1]), ([3, 1], [3, 1]), ([1e-3, 2.5], [1, 2500]), ([1 / 3], [1])]:
        assert whole_numbers(weights) == whole
    blend = blended([700] * 4, [0.7, 0.2, 0.1, 0.3])
    assert blend.component[: len(blend)].tolist() == list(islice(deal([7, 2, 1, 3]), len(blend)))


def test_a_blend_ends_before_a_sample_comes_twice():
    blend = blended([10, 1000], [1, 3])
    items = [blend[i] for i in range(len(blend))]
    assert len(set(items)) == len(items)
    assert blend.samples_used.tolist() == [10, len(blend) - 10]
    assert 40 <= len(blend) <= 43  # the eleventh of the first is due at its share of 1/4, within a sample
    assert [i for name, i in items if name == 0] == list(range(10))
    all_items = {blend[i] for i in range(blend.sample.size)}
    assert all_items == {(0, i) for i in range(10)} | {(1, i) for i in range(1000)}
    small = blended([3, 90], [1, 0.001])  # too small for its share of an epoch
    assert (small.samples_used.tolist(), sorted(small.epoch_order(0, 7))) == ([3, 0], [0, 1, 2])


def test_no_sample_comes_twice_in_an_epoch_and_all_come_in_time():
    """Of 40, 500 and 90 samples an epoch has 40, 102 and 61: all, a quarter, and more than half. Shares hold in the
    shuffled order, which depends on seed and epoch alone."""
    lengths = [40, 500, 90]
    blend = blended(lengths, [0.2, 0.5, 0.3])
    assert blend.samples_used.tolist() == [40, 102, 61]
    orders = [blend.epoch_order(seed=1, epoch=epoch) for epoch in range(20)]
    epochs = [[blend[i] for i in order] for order in orders]
    assert all(len(set(read)) == len(read) == len(blend) for read in epochs)
    assert max(abs(ahead_of_share([name for name, _ in read], [2, 5, 3])).max() for read in epochs[:3]) < 10
    four = [sample for read in epochs[4:8] for sample in read if sample[0] == 1]
    assert len(set(four)) == len(four) == 4 * 102  # a part of it each time
    everything = {(name, i) for name, length in enumerate(lengths) for i in range(length)}
    assert {sample for read in epochs for sample in read} == everything
    assert orders[1].tolist() == blend.epoch_order(1, 1).tolist() != blend.epoch_order(2, 1).tolist()
    assert orders[1].tolist() != orders[2].tolist()


def test_open_splits(write, documents, tmp_path):
    a, b = write("data/a", documents), write("data/b", documents[:50])
    train, valid, test = open_splits(f"3 {a} 1 {b}", "8,2", 16, 0, tmp_path / "cache", wanted=("train", "valid"))
    assert test is None
    assert isinstance(train, BlendedDataset) and isinstance(valid, BlendedDataset)
    assert train[0]["input_ids"].shape == (16,)
    first, last = sum(map(len, documents[:160])), sum(map(len, documents[:40]))
    assert [len(part) for part in train.datasets] == [(first - 1) // 16, (last - 1) // 16]


def test_a_small_corpus_of_a_folder_may_have_nothing_for_a_split(write, documents, tmp_path):
    write("data/a", documents), write("data/b", [[1] * 100] + [[2]] * 9)
    train, valid, _ = open_splits(tmp_path / "data", "8,2", 16, 0, tmp_path / "cache", wanted=("train", "valid"))
    assert len(train.datasets) == 2
    assert valid.corpus.prefix == f"{tmp_path}/data/a"
    with pytest.raises(DataError, match="b: the valid split has 2 of 10 documents with 2 tokens"):
        open_splits(f"1 {tmp_path}/data/a 1 {tmp_path}/data/b", "8,2", 16, 0, tmp_path / "cache")
    write("c/a", documents), write("c/b", [[1] * 100, [2, 400]], vocab_size=500)
    open_splits(tmp_path / "c", "1", 16, 0, tmp_path / "cache", 401, wanted=("train",))
    with pytest.raises(DataError, match=r"c/b\.bin: token id 400 in document 1"):
        open_splits(tmp_path / "c", "1", 16, 0, tmp_path / "cache", 400, wanted=("train",))

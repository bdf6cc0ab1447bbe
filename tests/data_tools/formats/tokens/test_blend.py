"""What --input_dir may name, and the shares of a blend."""

from itertools import islice

import numpy as np
import pytest

from data_tools.formats.blended import BlendedDataset, deal, whole_numbers
from data_tools.formats.errors import DataError
from data_tools.formats.tokens.blend import find_corpora, open_splits


def test_a_folder_is_all_its_pairs(write, documents, tmp_path):
    b, a = write("data/b", documents), write("data/a.v1", documents)
    assert find_corpora(tmp_path / "data") == [(None, a), (None, b)]


def test_one_prefix_with_or_without_its_suffix(write, documents):
    prefix = write("a", documents)
    assert find_corpora(prefix) == find_corpora(f"{prefix}.bin") == find_corpora(f"{prefix}.idx") == [(None, prefix)]


@pytest.mark.parametrize("form", ["0.7 {a} 0.3 {b}", "0.7,{a},0.3,{b}", " 0.7, {a}, 0.3, {b} "])
def test_weights_and_prefixes(write, documents, form):
    a, b = write("a", documents), write("data/b", documents)
    assert find_corpora(form.format(a=a, b=b)) == [(0.7, a), (0.3, b)]


def test_a_folder_with_a_space_in_its_name(write, documents, tmp_path):
    prefix = write("my data/a", documents)
    assert find_corpora(tmp_path / "my data") == [(None, prefix)]


def test_missing_data_name_the_path_and_the_command(tmp_path):
    with pytest.raises(
        DataError, match=rf"no data at {tmp_path}/x: looked for .* .venv/bin/python -m data_tools.tokenize .*/x/corpus"
    ):
        find_corpora(tmp_path / "x")
    with pytest.raises(DataError, match=rf"no data in {tmp_path}: looked for pairs X.bin and X.idx"):
        find_corpora(tmp_path)


def test_the_command_that_makes_data_can_be_pasted(tmp_path):
    (tmp_path / "my data").mkdir()
    with pytest.raises(DataError, match=rf"DIR --output '{tmp_path}/my data/corpus'$"):
        find_corpora(tmp_path / "my data")


@pytest.mark.parametrize("named", ["a b", "0.5 a 0.5", "0 a 1 b", "-1 a 2 b", "a 0.5 b 0.5", "nan a 1 b"])
def test_weights_that_are_none(named):
    with pytest.raises(DataError, match="expected one path, or weights above 0 and paths in turn"):
        find_corpora(named)


def test_one_weight_for_two_corpora(write, documents, tmp_path):
    write("data/a", documents), write("data/b", documents)
    with pytest.raises(DataError, match="data has 2 corpora, and one weight"):
        find_corpora(f"0.5 {tmp_path}/data 0.5 {tmp_path}/data/a")


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


@pytest.mark.parametrize(
    "weights, whole", [([0.7, 0.2, 0.1], [7, 2, 1]), ([3, 1], [3, 1]), ([1e-3, 2.5], [1, 2500]), ([1 / 3], [1])]
)
def test_weights_are_what_is_written(weights, whole):
    assert whole_numbers(weights) == whole


def test_a_pattern_that_repeats_is_that_of_one_long_deal():
    weights = [7, 2, 1, 3]
    blend = BlendedDataset([Numbered(name, 700) for name in range(4)], [0.7, 0.2, 0.1, 0.3])
    assert blend.component[: len(blend)].tolist() == list(islice(deal(weights), len(blend)))


def test_a_blend_ends_before_a_sample_comes_twice():
    blend = BlendedDataset([Numbered("a", 10), Numbered("b", 1000)], [1, 3])
    items = [blend[i] for i in range(len(blend))]
    assert len(set(items)) == len(items)
    assert blend.samples_used.tolist() == [10, len(blend) - 10]
    assert 40 <= len(blend) <= 43  # the eleventh of "a" is due at its share of 1/4, within a sample
    assert [i for name, i in items if name == "a"] == list(range(10))
    all_items = {blend[i] for i in range(blend.sample.size)}
    assert all_items == {("a", i) for i in range(10)} | {("b", i) for i in range(1000)}


@pytest.mark.parametrize("lengths", [[7], [1, 1], [5, 1000], [3, 1, 4, 1, 5, 9, 2, 6], [333, 333, 334]])
def test_without_weights_each_sample_comes_once(lengths):
    blend = BlendedDataset([Numbered(name, length) for name, length in enumerate(lengths)])
    items = [blend[i] for i in range(len(blend))]
    assert sorted(items) == [(name, i) for name, length in enumerate(lengths) for i in range(length)]


def test_shares_hold_in_the_shuffled_order_of_every_epoch():
    blend = BlendedDataset([Numbered(name, length) for name, length in enumerate([40, 500, 90])], [0.2, 0.5, 0.3])
    for epoch in range(3):
        taken = [blend[i][0] for i in blend.epoch_order(seed=1, epoch=epoch)]
        assert len(taken) == len(blend)
        assert abs(ahead_of_share(taken, [2, 5, 3])).max() < 10


def test_no_sample_comes_twice_in_an_epoch_and_all_come_in_time():
    """Of 40, 500 and 90 samples an epoch has 40, 102 and 61: all, a quarter, and more than half."""
    lengths = [40, 500, 90]
    blend = BlendedDataset([Numbered(name, length) for name, length in enumerate(lengths)], [0.2, 0.5, 0.3])
    assert blend.samples_used.tolist() == [40, 102, 61]
    epochs = [[blend[i] for i in blend.epoch_order(seed=1, epoch=epoch)] for epoch in range(20)]
    assert all(len(set(read)) == len(read) for read in epochs)
    four = [sample for read in epochs[4:8] for sample in read if sample[0] == 1]
    assert len(set(four)) == len(four) == 4 * 102  # a part of it each time
    everything = {(name, i) for name, length in enumerate(lengths) for i in range(length)}
    assert {sample for read in epochs for sample in read} == everything
    assert epochs[0] != epochs[1]


def test_a_dataset_too_small_for_its_share_of_an_epoch():
    blend = BlendedDataset([Numbered("a", 3), Numbered("b", 90)], [1, 0.001])
    assert (blend.samples_used.tolist(), sorted(blend.epoch_order(0, 7))) == ([3, 0], [0, 1, 2])


def test_the_order_of_an_epoch_depends_on_seed_and_epoch_alone():
    blend = BlendedDataset([Numbered("a", 50), Numbered("b", 80)], [1, 1])
    first = blend.epoch_order(3, 1)
    assert blend.epoch_order(3, 2).tolist() != first.tolist() != blend.epoch_order(4, 1).tolist()
    assert blend.epoch_order(3, 1).tolist() == first.tolist()


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


def test_an_id_beyond_the_vocabulary_is_found_in_the_second_corpus(write, documents, tmp_path):
    write("data/a", documents), write("data/b", [[1] * 100, [2, 400]], vocab_size=500)
    open_splits(tmp_path / "data", "1", 16, 0, tmp_path / "cache", 401, wanted=("train",))
    with pytest.raises(DataError, match=r"data/b\.bin: token id 400 in document 1"):
        open_splits(tmp_path / "data", "1", 16, 0, tmp_path / "cache", 400, wanted=("train",))

"""What --input_dir may name, and the shares of a blend."""

import numpy as np
import pytest

from data_tools.formats.blend import BlendedDataset, find_corpora, open_splits
from data_tools.formats.errors import DataError


def test_a_folder_is_all_its_pairs(write, documents, tmp_path):
    b, a = write("data/b", documents), write("data/a.v1", documents)
    assert find_corpora(tmp_path / "data") == [(None, a), (None, b)]


def test_one_prefix_with_or_without_its_suffix(write, documents):
    prefix = write("a", documents)
    assert (
        find_corpora(prefix)
        == find_corpora(f"{prefix}.bin")
        == find_corpora(f"{prefix}.idx")
        == [(None, prefix)]
    )


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


@pytest.mark.parametrize("seed", range(20))
def test_shares_hold_at_every_length(seed):
    """Two datasets: always within one sample. More: never one ahead, and behind by little."""
    random = np.random.default_rng(seed)
    count = 2 if seed < 10 else int(random.integers(3, 9))
    weights = random.uniform(0.01, 1, count)
    blend = BlendedDataset([Numbered(name, 3000) for name in range(count)], list(weights))
    taken = np.cumsum(np.eye(count)[blend.component], axis=0)
    ahead = taken - np.arange(1, len(blend) + 1)[:, None] * weights / weights.sum()
    assert ahead.max() < 1
    assert ahead.min() > (-1 if count == 2 else -2)


def test_a_blend_ends_before_a_sample_comes_twice():
    blend = BlendedDataset([Numbered("a", 10), Numbered("b", 1000)], [1, 3])
    items = [blend[i] for i in range(len(blend))]
    assert len(set(items)) == len(items)
    assert blend.samples_used.tolist() == [10, len(blend) - 10]
    assert 40 <= len(blend) <= 43  # the eleventh of "a" is due at its share of 1/4, within a sample
    assert [i for name, i in items if name == "a"] == list(range(10))


@pytest.mark.parametrize("lengths", [[7], [1, 1], [5, 1000], [3, 1, 4, 1, 5, 9, 2, 6], [333, 333, 334]])
def test_without_weights_each_sample_comes_once(lengths):
    blend = BlendedDataset([Numbered(name, length) for name, length in enumerate(lengths)])
    items = [blend[i] for i in range(len(blend))]
    assert sorted(items) == [(name, i) for name, length in enumerate(lengths) for i in range(length)]


def test_open_splits(write, documents, tmp_path):
    a, b = write("data/a", documents), write("data/b", documents[:50])
    train, valid, test = open_splits(
        f"3 {a} 1 {b}", "8,2", 16, 0, tmp_path / "cache", wanted=("train", "valid")
    )
    assert test is None
    assert isinstance(train, BlendedDataset) and isinstance(valid, BlendedDataset)
    assert train[0]["input_ids"].shape == (16,)
    first, last = sum(map(len, documents[:160])), sum(map(len, documents[:40]))
    assert [len(part) for part in train.datasets] == [(first - 1) // 16, (last - 1) // 16]


def test_a_small_corpus_of_a_folder_may_have_nothing_for_a_split(write, documents, tmp_path):
    write("data/a", documents), write("data/b", [[1] * 100] + [[2]] * 9)
    train, valid, _ = open_splits(
        tmp_path / "data", "8,2", 16, 0, tmp_path / "cache", wanted=("train", "valid")
    )
    assert len(train.datasets) == 2
    assert valid.corpus.prefix == f"{tmp_path}/data/a"
    with pytest.raises(DataError, match="b: the valid split has 2 of 10 documents with 2 tokens"):
        open_splits(f"1 {tmp_path}/data/a 1 {tmp_path}/data/b", "8,2", 16, 0, tmp_path / "cache")


def test_an_id_beyond_the_vocabulary_is_found_in_the_second_corpus(write, documents, tmp_path):
    write("data/a", documents), write("data/b", [[1] * 100, [2, 400]], vocab_size=500)
    open_splits(tmp_path / "data", "1", 16, 0, tmp_path / "cache", 401, wanted=("train",))
    with pytest.raises(DataError, match=r"data/b\.bin: token id 400 in document 1"):
        open_splits(tmp_path / "data", "1", 16, 0, tmp_path / "cache", 400, wanted=("train",))

"""From --dataset_name_or_path to samples: files found, weights kept, faults counted, everything told."""

import json

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from data_tools.dialogues.chat_template import ChatTemplate
from data_tools.dialogues.datasets import Columns, encode_survey, find_sources, survey
from data_tools.dialogues.samples import pack
from data_tools.formats.errors import DataError
from tests.data_tools.dialogues.test_encoding import decode, encoding


@pytest.fixture
def write(write_rows):
    """write("a/train.json", "x", 3): three pairs x0/x0!, ... and the path."""
    return lambda name, prefix, count: write_rows(
        name, [{"src": f"{prefix}{i}", "tgt": f"{prefix}{i}!"} for i in range(count)]
    )


def opened(named, wanted=("train",), allowed=0, how=None, row_tokens=None):
    found = survey(str(named), wanted, Columns(), allowed)
    return encode_survey(found, lambda chat: how or encoding(), row_tokens)


def questions(dataset, samples=None) -> list[str]:
    return [decode(dataset[i]["input_ids"])[3:5] for i in (range(len(dataset)) if samples is None else samples)]


def test_folder_with_train_and_dev(write, tmp_path):
    write("train.json", "a", 3), write("dev.jsonl", "b", 2)
    data = opened(tmp_path, ("train", "dev"))
    assert (questions(data.train), questions(data.dev)) == (["a0", "a1", "a2"], ["b0", "b1"])
    assert data.lines == [
        "training data: 3 dialogues (src/tgt), 18 tokens, 12 of answers, nothing cut",
        "evaluation data: 2 dialogues (src/tgt), 12 tokens, 8 of answers, nothing cut",
    ]
    (tmp_path / "dev.jsonl").write_text("broken")
    assert opened(tmp_path).dev is None, "only what is wanted is read"
    with pytest.raises(DataError, match="^--src_length: found 8, allowed: less than --max_length 8, for an answer to"):
        opened(tmp_path, how=encoding(src_length=8, max_length=8))


def test_a_file_is_evaluated_on_that_beside_it(write, tmp_path):
    train, _ = write("sft-train.json", "a", 2), write("sft-eval.json", "b", 1)
    assert questions(opened(train, ("train", "dev")).dev) == ["b0"]
    with pytest.raises(DataError, match="no data to evaluate on"):
        opened(write("constrained.json", "a", 1), ("train", "dev"))


def test_parquet_is_read_as_json_is(write, tmp_path):
    rows = [json.loads(line) for line in open(write("a/train.json", "a", 3))]
    (tmp_path / "b").mkdir()
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "b" / "train.parquet")
    assert opened(tmp_path / "a").train.identity() == opened(tmp_path / "b").train.identity()


def test_two_files_for_one_split_are_refused_and_a_folder_may_have_several(write, tmp_path):
    """One is often made of the other: read together they would count twice, or train on what is evaluated."""
    write("train.json", "a", 1), write("train.jsonl", "b", 1), write("train/1.json", "c", 1)
    with pytest.raises(DataError, match=r"found train\.json and train\.jsonl, allowed: one of them\. .* folder train,"):
        opened(tmp_path)
    (tmp_path / "train.json").unlink()
    assert questions(opened(tmp_path).train) == ["b0"]
    write("b/train/1.json", "a", 1), write("b/train/2.jsonl", "b", 1), write("b/dev/x.json", "c", 1)
    for name in ("notes.txt", ".hidden.jsonl"):
        (tmp_path / "b" / "train" / name).write_text("not data")
    assert questions(opened(tmp_path / "b").train) == ["a0", "b0"]


def test_weights_mix_what_is_trained_on_and_dev_is_whole(write, tmp_path):
    write("a/train.json", "a", 9), write("a/dev.json", "d", 2), write("b/train.json", "b", 9)
    data = opened(f"0.75 {tmp_path / 'a'} 0.25 {tmp_path / 'b'}", ("train", "dev"))
    assert sorted(questions(data.train)) == sorted([f"a{i}" for i in range(9)] + [f"b{i}" for i in range(3)])
    assert questions(data.dev) == ["d0", "d1"]
    assert data.train.samples_used.tolist() == [9, 3]
    later = [questions(data.train, data.train.epoch_order(seed=0, epoch=epoch)) for epoch in range(3)]
    assert sorted(sum(later, [])) == sorted([f"a{i}" for i in range(9)] * 3 + [f"b{i}" for i in range(9)])
    assert data.train.tokens.sum() == data.train.tokens.size * 6 == 18 * 6


def test_packed_rows_hold_every_dialogue_once(write, tmp_path):
    """What a row has is what its dialogues have, one after another, with positions from 0 in each."""
    write("train.json", "a", 7)
    apart, data = opened(tmp_path).train, opened(tmp_path, row_tokens=20)
    rows = [data.train[i] for i in range(len(data.train))]
    assert [row["labels"].size for row in rows] == data.train.tokens.tolist() == [18, 18, 6]
    assert rows[0]["position_ids"].tolist() == [*range(6)] * 3
    for key in ("input_ids", "labels"):
        pieces = [row[key][start : start + 6].tolist() for row in rows for start in range(0, row[key].size, 6)]
        assert sorted(pieces) == sorted(apart[i][key].tolist() for i in range(7))
    assert data.train.counted.tolist() == [12, 12, 4]
    assert data.lines[1] == "packed: 3 rows of up to 20 tokens, 70% full"


def test_packed_sources_are_blended_by_rows(write, tmp_path):
    write("a/train.json", "a", 9), write("b/train.json", "b", 9)
    train = opened(f"0.5 {tmp_path / 'a'} 0.5 {tmp_path / 'b'}", row_tokens=18).train
    assert [decode(train[i]["input_ids"])[3] for i in range(len(train))] == [*"abababab"][: len(train)]
    assert len(train) == 6 and train[0]["position_ids"].tolist() == [*range(6)] * 3


@pytest.mark.parametrize("seed", range(5))
def test_packing_fits_and_loses_nothing(seed):
    lengths = np.random.default_rng(seed).integers(1, 100, 300).tolist()
    rows = pack(lengths, 100)
    assert sorted(number for row in rows for number in row) == list(range(300))
    assert all(sum(lengths[number] for number in row) <= 100 for row in rows)
    assert len(rows) <= sum(lengths) / 100 * 1.05 + 1  # hardly anything is padding
    assert rows == pack(lengths, 100)


def test_what_is_not_there_is_named(write, tmp_path):
    path = write("a/pairs.jsonl", "a", 2)
    assert questions(opened(path).train) == ["a0", "a1"]
    with pytest.raises(DataError, match="no data to evaluate on in .*--do_eval 0"):
        opened(path, ("train", "dev"))
    for place, message in ((tmp_path, "looked for train.json and dev.json"), (tmp_path / "no", "no such folder or")):
        with pytest.raises(DataError, match=message):
            find_sources(str(place))
    write("dev.json", "a", 1)
    assert len(opened(tmp_path, ("dev",)).dev) == 1
    with pytest.raises(DataError, match="none to train on"):
        opened(tmp_path, ("train", "dev"))


def test_broken_rows_of_all_files_are_counted_together(write, tmp_path):
    for name in ("train.json", "dev.json"):
        with open(write(name, "a", 2), "a") as file:
            file.write("{}\n")
    with pytest.raises(DataError, match="2 broken rows, --max_broken_rows allows 1: .*train.json:3: no key 'src'"):
        opened(tmp_path, ("train", "dev"), allowed=1)
    data = opened(tmp_path, ("train", "dev"), allowed=2)
    assert (len(data.train), len(data.dev)) == (2, 2)
    assert data.lines[-1] == f"broken rows left out: 2, the first {tmp_path / 'train.json'}:3: no key 'src', only none"


def test_rows_that_the_template_does_not_render_are_broken_ones(write_rows, tmp_path):
    drops_thoughts = (
        "{% for m in messages %}{{ m.content.split('</think>')[-1] }}"
        "{% if m.role == 'assistant' %}</s>{% endif %}{% endfor %}"
    )
    how = encoding(ChatTemplate(drops_thoughts, "mine"))
    good, thought, last = [{"instruction": "Q", "output": text} for text in ("a", "<think>x</think>b", "c")]
    file = write_rows("train.json", [good, thought, {}, last])
    with pytest.raises(DataError, match="2 broken rows, --max_broken_rows allows 1: ") as refused:
        opened(tmp_path, allowed=1, how=how)
    assert f"{file}:2: mine: it leaves out or changes the assistant text '<think>x</think>b'" in str(refused.value)
    data = opened(tmp_path, allowed=2, how=how)
    assert [decode(data.train[i]["input_ids"]) for i in range(2)] == ["Qa", "Qc"]
    assert data.lines[0].startswith("training data: 2 dialogues ")
    write_rows("train.json", [thought])
    with pytest.raises(DataError, match="train.json: none of the first rows can be rendered. Line 1: mine: it leaves"):
        opened(tmp_path, allowed=5, how=how)


def test_encoding_depends_on_whether_a_file_holds_chats(write_rows, tmp_path):
    write_rows("train.json", [{"instruction": "Q", "output": "A"}])
    asked = []
    encode_survey(survey(str(tmp_path), ("train",), Columns(), 0), lambda chat: asked.append(chat) or encoding())
    assert asked == [True]

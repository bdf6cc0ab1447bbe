"""From --dataset_name_or_path to samples: files found, weights kept, faults counted, everything told."""

import json

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from data_tools.formats.dialogues.chat_template import ChatTemplate
from data_tools.formats.dialogues.datasets import Columns, encode_survey, find_sources, survey
from data_tools.formats.dialogues.samples import pack
from data_tools.formats.errors import DataError
from tests.data_tools.formats.dialogues.test_encoding import decode, encoding


@pytest.fixture
def write(tmp_path):
    """write("a/train.json", "x", 3): three pairs x0/x0!, ... and the path."""

    def write_pairs(name: str, prefix: str, count: int):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        rows = [{"src": f"{prefix}{i}", "tgt": f"{prefix}{i}!"} for i in range(count)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write_pairs


def opened(named, wanted=("train", "dev"), allowed=0):
    return encode_survey(survey(str(named), wanted, Columns(), allowed), lambda chat: encoding())


def questions(dataset) -> list[str]:
    return questions_of(dataset, range(len(dataset)))


def questions_of(dataset, samples) -> list[str]:
    return [decode(dataset[i]["input_ids"])[3:5] for i in samples]


def test_folder_with_train_and_dev(write, tmp_path):
    write("train.json", "a", 3), write("dev.jsonl", "b", 2)
    data = opened(tmp_path)
    assert (questions(data.train), questions(data.dev)) == (["a0", "a1", "a2"], ["b0", "b1"])
    assert data.lines == [
        "training data: 3 dialogues (src/tgt), 18 tokens, 12 of answers, nothing cut",
        "evaluation data: 2 dialogues (src/tgt), 12 tokens, 8 of answers, nothing cut",
    ]


def test_folders_train_and_dev_with_several_files(write, tmp_path):
    write("train/1.json", "a", 1), write("train/2.jsonl", "b", 1), write("dev/x.json", "c", 1)
    (tmp_path / "train" / "notes.txt").write_text("not data")
    assert questions(opened(tmp_path).train) == ["a0", "b0"]


def test_parquet_is_read_as_json_is(write, tmp_path):
    write("a/train.json", "a", 3)
    rows = [json.loads(line) for line in (tmp_path / "a" / "train.json").read_text().splitlines()]
    (tmp_path / "b").mkdir()
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "b" / "train.parquet")
    found = [opened(tmp_path / folder, wanted=("train",)).train for folder in "ab"]
    assert found[0].identity() == found[1].identity()


def test_a_question_as_long_as_a_sample_is_refused(write, tmp_path):
    write("train.json", "a", 1)
    found = survey(str(tmp_path), ("train",), Columns(), 0)
    with pytest.raises(DataError, match="^--src_length: found 8, allowed: less than --max_length 8, for an answer to"):
        encode_survey(found, lambda chat: encoding(src_length=8, max_length=8))


def test_two_files_for_one_split_are_refused(write, tmp_path):
    """One is often made of the other: read together they would count twice, or train on what is evaluated."""
    write("train.json", "a", 1), write("train.jsonl", "b", 1), write("train/1.json", "c", 1)
    with pytest.raises(DataError, match=r"found train\.json and train\.jsonl, allowed: one of them\. .* folder train,"):
        opened(tmp_path, wanted=("train",))
    (tmp_path / "train.json").unlink()
    assert questions(opened(tmp_path, wanted=("train",)).train) == ["b0"]


def test_only_what_is_wanted_is_read(write, tmp_path):
    write("train.json", "a", 1)
    (tmp_path / "dev.json").write_text("broken")
    data = opened(tmp_path, wanted=("train",))
    assert (len(data.train), data.dev) == (1, None)


def test_weights_mix_what_is_trained_on_and_dev_is_whole(write, tmp_path):
    write("a/train.json", "a", 9), write("a/dev.json", "d", 2), write("b/train.json", "b", 9)
    data = opened(f"0.75 {tmp_path / 'a'} 0.25 {tmp_path / 'b'}")
    used = questions(data.train)
    assert sorted(used) == sorted([f"a{i}" for i in range(9)] + [f"b{i}" for i in range(3)])
    assert questions(data.dev) == ["d0", "d1"]
    assert data.train.samples_used.tolist() == [9, 3]
    later = [questions_of(data.train, data.train.epoch_order(seed=0, epoch=epoch)) for epoch in range(3)]
    assert sorted(sum(later, [])) == sorted([f"a{i}" for i in range(9)] * 3 + [f"b{i}" for i in range(9)])
    assert data.train.tokens.sum() == data.train.tokens.size * 6 == 18 * 6


def test_packed_rows_hold_every_dialogue_once(write, tmp_path):
    """What a row has is what its dialogues have, one after another, with positions from 0 in each."""
    write("train.json", "a", 7)
    found = survey(str(tmp_path), ("train",), Columns(), 0)
    apart = encode_survey(found, lambda chat: encoding()).train
    data = encode_survey(found, lambda chat: encoding(), row_tokens=20)
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
    found = survey(f"0.5 {tmp_path / 'a'} 0.5 {tmp_path / 'b'}", ("train",), Columns(), 0)
    train = encode_survey(found, lambda chat: encoding(), row_tokens=18).train
    assert len(train) == 6
    assert {decode(train[i]["input_ids"])[3] for i in range(0, 6, 2)} == {"a"}
    assert train[0]["position_ids"].tolist() == [*range(6)] * 3


@pytest.mark.parametrize("seed", range(5))
def test_packing_fits_and_loses_nothing(seed):
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 100, 300).tolist()
    rows = pack(lengths, 100)
    assert sorted(number for row in rows for number in row) == list(range(300))
    assert all(sum(lengths[number] for number in row) <= 100 for row in rows)
    assert len(rows) <= sum(lengths) / 100 * 1.05 + 1  # hardly anything is padding
    assert rows == pack(lengths, 100)


def test_one_file_is_trained_on(write):
    path = write("pairs.jsonl", "a", 2)
    assert questions(opened(path, wanted=("train",)).train) == ["a0", "a1"]
    with pytest.raises(DataError, match="no data to evaluate on in .*--do_eval 0"):
        opened(path)


def test_nothing_there_names_what_was_looked_for(tmp_path):
    with pytest.raises(DataError, match="looked for train.json and dev.json"):
        find_sources(str(tmp_path))
    with pytest.raises(DataError, match="no such folder or file"):
        find_sources(str(tmp_path / "nowhere"))


def test_folder_without_training_data(write, tmp_path):
    write("dev.json", "a", 1)
    with pytest.raises(DataError, match="none to train on"):
        opened(tmp_path)
    assert len(opened(tmp_path, wanted=("dev",)).dev) == 1


def test_broken_rows_of_all_files_are_counted_together(write, tmp_path):
    for name in ("train.json", "dev.json"):
        with open(write(name, "a", 2), "a") as file:
            file.write("{}\n")
    with pytest.raises(DataError, match="2 broken rows, --max_broken_rows allows 1: .*train.json:3: no key 'src'"):
        opened(tmp_path, allowed=1)
    data = opened(tmp_path, allowed=2)
    assert (len(data.train), len(data.dev)) == (2, 2)
    assert data.lines[-1] == f"broken rows left out: 2, the first {tmp_path / 'train.json'}:3: no key 'src', only none"


THINKS = (
    "{% for m in messages %}{{ m.content.split('</think>')[-1] }}"
    "{% if m.role == 'assistant' %}</s>{% endif %}{% endfor %}"
)


def test_rows_that_the_template_does_not_render_are_broken_ones(tmp_path):
    answers = ["a", "<think>x</think>b", "c"]
    rows = [{"instruction": "Q", "output": answer} for answer in answers]
    (tmp_path / "train.json").write_text("".join(json.dumps(row) + "\n" for row in [*rows[:2], {}, rows[2]]))
    how = encoding(ChatTemplate(THINKS, "mine"))
    with pytest.raises(DataError) as refused:
        encode_survey(survey(str(tmp_path), ("train",), Columns(), 1), lambda chat: how)
    assert "2 broken rows, --max_broken_rows allows 1: " in str(refused.value)
    reason = "mine: it leaves out or changes the assistant text '<think>x</think>b'"
    assert f"{tmp_path / 'train.json'}:2: {reason}" in str(refused.value)
    data = encode_survey(survey(str(tmp_path), ("train",), Columns(), 2), lambda chat: how)
    assert [decode(data.train[i]["input_ids"]) for i in range(2)] == ["Qa", "Qc"]
    assert data.lines[0].startswith("training data: 2 dialogues ")
    (tmp_path / "train.json").write_text(json.dumps(rows[1]) + "\n")
    with pytest.raises(DataError, match="train.json: none of the first rows can be rendered. Line 1: mine: it leaves"):
        encode_survey(survey(str(tmp_path), ("train",), Columns(), 5), lambda chat: how)


def test_encoding_depends_on_whether_a_file_holds_chats(write, tmp_path):
    (tmp_path / "train.json").write_text(json.dumps([{"instruction": "Q", "output": "A"}]))
    found = survey(str(tmp_path), ("train",), Columns(), 0)
    asked = []
    encode_survey(found, lambda chat: asked.append(chat) or encoding())
    assert asked == [True]

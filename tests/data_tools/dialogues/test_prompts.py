"""Prompts whose answers can be checked: which rows are read, and what of them is asked and right."""

import json

import pytest

from data_tools.dialogues.prompts import PromptColumns, PromptDataset, encode_prompt_rows
from data_tools.dialogues.samples import Cuts
from data_tools.formats.errors import DataError
from tests.data_tools.dialogues.test_encoding import encoding

ASKED = [{"role": "user", "content": "1 + 1?"}]


def read(tmp_path, row, **columns):
    (tmp_path / "train.json").write_text(json.dumps(row) + "\n")
    return PromptColumns(**columns).read(tmp_path / "train.json")


@pytest.mark.parametrize(
    ("row", "columns", "chat", "answer"),
    [
        ({"question": "1 + 1?", "answer": "so #### 2", "level": 3}, {}, True, "so #### 2"),
        ({"problem": "1 + 1?", "solution": 2}, {}, True, "2"),
        ({"prompt": "1 + 1?", "answer": "2"}, {}, False, "2"),
        ({"prompt": ASKED, "reward_model": {"ground_truth": "2"}}, {}, True, "2"),
        ({"prompt": ASKED}, {}, True, ""),
        ({"messages": [*ASKED, {"role": "assistant", "content": "two"}]}, {}, True, "two"),
        ({"conversations": [{"from": "human", "value": "1 + 1?"}], "answer": "2"}, {}, True, "2"),
        ({"src": "1 + 1?", "tgt": "two"}, {}, False, "two"),
        ({"src": "1 + 1?", "tgt": "two", "value": [2]}, {"answer": "value"}, False, "[2]"),
        ({"q": "1 + 1?", "answer": "2"}, {"prompt": "q"}, False, "2"),
    ],
)
def test_what_is_asked_and_right(tmp_path, row, columns, chat, answer):
    rows = read(tmp_path, row, **columns)
    [asked] = rows.entries
    assert [message.text for message in asked.dialogue.messages] == ["1 + 1?"]
    assert (rows.schema.chat, asked.answer, asked.row) == (chat, answer, row)
    assert not rows.unused and not rows.faults


def test_a_column_that_is_not_there_is_a_fault(tmp_path):
    with pytest.raises(DataError, match="train.json: no row can be used, 1 broken row.*no key 'x', which --answer_col"):
        read(tmp_path, {"question": "1 + 1?", "answer": "2"}, answer="x")
    with pytest.raises(DataError, match="the keys of the first rows are a; known are prompt; question; problem"):
        read(tmp_path, {"a": "b"})


def test_a_long_prompt_keeps_its_end_and_identity_has_all_columns(tmp_path):
    how = encoding(src_length=4, max_length=9)
    data, faults = encode_prompt_rows(read(tmp_path, {"prompt": "abcdef", "answer": "x", "n": 1}), how)
    whole = how.encode("abcdef")
    assert not faults and str(data.cuts) == "cut: 1 question"
    assert data[0].ids[-2:] == whole[-2:] and len(data[0].ids) == 4 == data.longest
    other, _ = encode_prompt_rows(read(tmp_path, {"prompt": "abcdef", "answer": "x", "n": 2}), how)
    assert data.identity() != other.identity()
    assert data.identity() == PromptDataset([data[0]], Cuts(1, 0, 0)).identity()

"""Rows of every form become preferences, or say why they are none."""

import json
from math import inf, nan

import pyarrow
import pytest
from pyarrow import parquet

from data_tools.formats.dialogues.dialogue import Turn
from data_tools.formats.errors import DataError
from data_tools.formats.preferences.forms import Preference, PreferenceColumns


def said(*words: str, role: str = "role", text: str = "content") -> list[dict]:
    """[{"role": "user", "content": "Q"}, ...] from ("user", "Q", ...)."""
    return [{role: words[i], text: words[i + 1]} for i in range(0, len(words), 2)]


ONE = Preference((), "Q", "", "A", "B")
TWO = Preference((Turn("P", "O"),), "Q", "S", "A", "B")
GOOD, BAD = Preference((), "Q", "", "A", None), Preference((), "Q", "", None, "A")
BEFORE = ("system", "S", "user", "P", "assistant", "O", "user", "Q")
ULTRAFEEDBACK = {
    "prompt": "Q",
    "prompt_id": "1",
    "chosen": said("user", "Q", "assistant", "A"),
    "rejected": said("user", "Q", "assistant", "B"),
    "messages": said("user", "Q", "assistant", "A"),
    "score_chosen": 8.0,
}
FORMS = [
    ({"prompt": "Q", "chosen": "A", "rejected": "B"}, "prompt/chosen/rejected", False, ONE),
    ({"chosen": "The sky is blue.", "rejected": "The sky is black."}, "chosen/rejected", False,
     Preference((), "The sky is", "", " blue.", " black.")),
    ({"chosen": "天是蓝的", "rejected": "天是黑的"}, "chosen/rejected", False,
     Preference((), "天是", "", "蓝的", "黑的")),
    ({"prompt": said("user", "Q"), "chosen": said("assistant", "A"), "rejected": said("assistant", "B")},
     "chosen/rejected messages", True, ONE),
    ({"chosen": said(*BEFORE, "assistant", "A"), "rejected": said(*BEFORE, "assistant", "B")},
     "chosen/rejected messages", True, TWO),
    ({"system": "S", "prompt": said(*BEFORE[2:]), "chosen": said(*BEFORE[2:], "assistant", "A"),
      "rejected": said("assistant", "B")}, "chosen/rejected messages", True, TWO),
    ({"prompt": "Q", "chosen": said("assistant", "A")[0], "rejected": said("assistant", "B")[0]},
     "chosen/rejected messages", True, ONE),
    (ULTRAFEEDBACK, "chosen/rejected messages", True, ONE),
    ({"chosen": "\n\nHuman: P\n\nAssistant: O\n\nHuman: Q\n\nAssistant: A",
      "rejected": "\n\nHuman: P\n\nAssistant: O\n\nHuman: Q\n\nAssistant: B"}, "chosen/rejected of Anthropic", True,
     Preference(TWO.turns, "Q", "", "A", "B")),
    ({"src": "Q", "tgt": "", "response": ["A", "B"], "sort": [1, 0]}, "src/response/sort", False, ONE),
    ({"src": ["P", "Q"], "tgt": ["O"], "response": ["B", "A"], "sort": [0, 3], "system": "S"}, "src/response/sort",
     False, TWO),
    ({"conversations": said("human", "Q", role="from", text="value"), "chosen": {"from": "gpt", "value": "A"},
      "rejected": {"from": "gpt", "value": "B"}}, "conversations/chosen/rejected", True, ONE),
    ({"instruction": "Q", "input": "x", "chosen": "A", "rejected": "B"}, "instruction/chosen/rejected", True,
     Preference((), "Q\n\nx", "", "A", "B")),
    ({"messages": said(*BEFORE, "assistant", "A"), "rejected_response": "B"}, "messages/rejected_response", True, TWO),
    ({"messages": said("user", "Q", "assistant", "A"), "label": False}, "messages/label", True, BAD),
    ({"prompt": "Q", "completion": "A", "label": True}, "prompt/completion/label", False, GOOD),
    ({"prompt": said("user", "Q"), "completion": said("assistant", "A"), "label": False},
     "prompt/completion/label messages", True, BAD),
    ({"src": ["Q"], "tgt": [], "response": ["A"], "sort": [1]}, "src/response/sort", False, GOOD),
    ({"src": ["Q"], "response": ["A"], "sort": [0]}, "src/response/sort", False, BAD),
]  # fmt: skip


@pytest.fixture
def read(tmp_path):
    def read_all(*rows: dict, columns=PreferenceColumns()):
        (tmp_path / "a.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return columns.read(tmp_path / "a.json")

    return read_all


@pytest.mark.parametrize(("row", "name", "chat", "preference"), FORMS)
def test_each_form(read, row, name, chat, preference):
    rows = read(row)
    assert (rows.schema.name, rows.schema.chat, rows.entries) == (name, chat, [preference])


PAIR = {"prompt": "Q", "chosen": "A", "rejected": "B"}
MESSAGES = {"chosen": said("user", "Q", "assistant", "A"), "rejected": said("user", "Q", "assistant", "B")}
SORTED = {"src": ["Q"], "tgt": [], "response": ["A", "B"], "sort": [1, 0]}
LABELED = {"prompt": "Q", "completion": "A", "label": True}


@pytest.mark.parametrize(
    ("good", "change", "reason"),
    [
        (PAIR, {"rejected": " A "}, "chosen and rejected are the same"),
        (PAIR, {"chosen": "\n"}, "an empty chosen response"),
        (PAIR, {"rejected": ""}, "an empty answer"),
        (PAIR, {"rejected": None}, "'rejected' is null, expected a text"),
        (PAIR, {"chosen": 3}, "'chosen' is not a text: 3"),
        (PAIR, {"chosen": "\ud800"}, "'chosen' has half a surrogate pair"),
        (MESSAGES, {"rejected": said("user", "P", "assistant", "B")}, "differ before their last message"),
        (MESSAGES, {"rejected": said("user", "Q")}, "user and assistant do not take turns, ending with the assistant"),
        (MESSAGES, {"rejected": said("tool", "Q", "assistant", "B")}, "role is 'tool', expected system, user, assis"),
        (MESSAGES, {"rejected": "B"}, "'rejected' or 'prompt' is not a list of messages"),
        (SORTED, {"sort": [1, 1]}, "'sort' has 1 twice"),
        *(
            (SORTED, {"sort": sort}, "'sort' is not a list of finite numbers")
            for sort in (["a", "b"], [nan, 0], [0, nan], [1, -inf])
        ),
        (SORTED, {"sort": [1]}, "2 texts at 'response' and 1 at 'sort', expected two of each, or one"),
        (SORTED, {"tgt": ["x"]}, "1 texts at 'src' and 1 at 'tgt', expected one more at 'src'"),
        (SORTED, {"response": ["A"], "sort": [2]}, "'sort' is 2, expected true or 1"),
        ({"messages": MESSAGES["chosen"], "rejected_response": "B"}, {"rejected_response": "A"}, "are the same"),
        ({"messages": MESSAGES["chosen"], "rejected_response": "B"}, {"rejected_response": " "}, "an empty rejected"),
        (LABELED, {"label": "true"}, "'label' is true, expected true or 1 for a desired response"),
        (LABELED, {"label": None}, "'label' is None, expected true or 1"),
        (LABELED, {"completion": " "}, "an empty response"),
        ({"chosen": "a b", "rejected": "a c"}, {"rejected": "x y"}, "begin with different words"),
    ],
)
def test_a_broken_row_is_told_with_its_line(read, good, change, reason):
    rows = read(good, good | change)
    assert len(rows.entries) == 1
    [fault] = rows.faults
    assert fault.line == 2 and reason in fault.reason


def test_a_text_at_an_unknown_key_is_no_prompt_that_responses_begin_with(read):
    row = {"question": "Q", "chosen": "It is A", "rejected": "It is B"}
    with pytest.raises(DataError, match="--prompt_column KEY --chosen_column KEY --rejected_column KEY"):
        read(row)
    assert read(row, columns=PreferenceColumns("question", "chosen", "rejected")).entries[0].question == "Q"
    with pytest.raises(DataError, match="--prompt_column, --chosen_column, --rejected_column: give all three or none"):
        read(row, columns=PreferenceColumns("question"))


def test_keys_that_are_not_used_are_counted(read):
    assert set(read(ULTRAFEEDBACK).unused) == {"prompt_id", "messages", "score_chosen"}


def test_parquet_holds_the_same(read, tmp_path, monkeypatch):
    monkeypatch.setattr("data_tools.formats.dialogues.rows.PARQUET_ROWS", 1)
    rows = [ULTRAFEEDBACK, ULTRAFEEDBACK | {"rejected": said("user", "Q", "assistant", "A")}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    found, same = PreferenceColumns().read(tmp_path / "a.parquet"), read(*rows)
    assert found.entries == same.entries == [ONE]
    assert [(fault.line, fault.reason) for fault in found.faults] == [(2, "chosen and rejected are the same")]


def test_a_parquet_row_that_is_no_text_is_a_fault_and_a_damaged_file_an_error(tmp_path):
    file = tmp_path / "a.parquet"
    chosen = pyarrow.array([b"A", b"\xff"]).view(pyarrow.string())
    parquet.write_table(pyarrow.table({"prompt": ["Q", "Q"], "chosen": chosen, "rejected": ["B", "B"]}), file)
    rows = PreferenceColumns().read(file)
    assert rows.entries == [ONE]
    assert [str(fault) for fault in rows.faults] == [f"{file}:2: not UTF-8 at byte 0. Convert the file to UTF-8"]
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(DataError, match="a.parquet cannot be read as Parquet: .*Copy or make it again"):
        PreferenceColumns().read(file)

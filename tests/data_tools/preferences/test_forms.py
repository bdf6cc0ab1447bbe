"""Rows of every form become preferences, or say why they are none."""

from math import inf, nan

import pyarrow
import pytest
from pyarrow import parquet

from data_tools.dialogues.messages import Message, plain_dialogue
from data_tools.formats.errors import DataError
from data_tools.preferences.forms import Preference, PreferenceColumns
from tests.data_tools.dialogues.test_dialogue import SHAREGPT, said


def preference(question: str, chosen: str | None, rejected: str | None, turns=(), system: str = "") -> Preference:
    both = [text and Message("assistant", text) for text in (chosen, rejected)]
    return Preference(plain_dialogue(turns, system, question), *both)


ONE, TWO = preference("Q", "A", "B"), preference("Q", "A", "B", [("P", "O")], "S")
GOOD, BAD = preference("Q", "A", None), preference("Q", None, "A")
BEFORE = ("system", "S", "user", "P", "assistant", "O", "user", "Q")
[A], [B] = said("assistant", "A"), said("assistant", "B")
PAIR = {"prompt": "Q", "chosen": "A", "rejected": "B"}
MESSAGES = {"chosen": said("user", "Q", "assistant", "A"), "rejected": said("user", "Q", "assistant", "B")}
SORTED = {"src": ["Q"], "tgt": [], "response": ["A", "B"], "sort": [1, 0]}
LABELED = {"prompt": "Q", "completion": "A", "label": True}
JUDGED = {"messages": MESSAGES["chosen"], "rejected_response": "B"}
ANTHROPIC = "\n\nHuman: P\n\nAssistant: O\n\nHuman: Q\n\nAssistant: "
ULTRAFEEDBACK = MESSAGES | {"prompt": "Q", "prompt_id": "1", "messages": MESSAGES["chosen"], "score_chosen": 8.0}
OF_MESSAGES, OF_SORTED = ("chosen/rejected messages", True), ("src/response/sort", False)
FORMS = [
    (PAIR, ("prompt/chosen/rejected", False), ONE),
    (
        {"chosen": "The sky is blue.", "rejected": "The sky is black."},
        ("chosen/rejected", False),
        preference("The sky is", " blue.", " black."),
    ),
    (
        {"chosen": "天是蓝的", "rejected": "天是黑的"},
        ("chosen/rejected", False),
        preference("天是", "蓝的", "黑的"),
    ),
    ({"prompt": said("user", "Q"), "chosen": [A], "rejected": [B]}, OF_MESSAGES, ONE),
    ({"prompt": "Q", "chosen": A, "rejected": B}, OF_MESSAGES, ONE),
    ({"chosen": [*said(*BEFORE), A], "rejected": [*said(*BEFORE), B]}, OF_MESSAGES, TWO),
    (
        {"system": "S", "prompt": said(*BEFORE[2:]), "chosen": [*said(*BEFORE[2:]), A], "rejected": [B]},
        OF_MESSAGES,
        TWO,
    ),
    (ULTRAFEEDBACK, OF_MESSAGES, ONE),
    (
        {"chosen": f"{ANTHROPIC}A", "rejected": f"{ANTHROPIC}B"},
        ("chosen/rejected of Anthropic", True),
        preference("Q", "A", "B", [("P", "O")]),
    ),
    (SORTED | {"src": "Q", "tgt": ""}, OF_SORTED, ONE),
    ({"src": ["P", "Q"], "tgt": ["O"], "response": ["B", "A"], "sort": [0, 3], "system": "S"}, OF_SORTED, TWO),
    (SORTED | {"response": [["A"], ["B"]]}, OF_SORTED, ONE),
    (
        {
            "src": ["S", "P"],
            "tgt": [""],
            "response": [["O", "Q", "A"], ["O", "Q", "B"]],
            "sort": [1, 0],
            "is_system": 1,
        },
        OF_SORTED,
        TWO,
    ),
    (
        {"messages": [*said("user", "Q"), {"preferred_output": A, "non_preferred_output": B}], "label": [1, 0]},
        ("messages/preferred_output", True),
        ONE,
    ),
    ({"src": ["Q"], "tgt": [], "response": ["A"], "sort": [1]}, OF_SORTED, GOOD),
    ({"src": ["Q"], "response": ["A"], "sort": [0]}, OF_SORTED, BAD),
    (
        {
            "conversations": said("human", "Q", **SHAREGPT),
            "chosen": said("gpt", "A", **SHAREGPT)[0],
            "rejected": said("gpt", "B", **SHAREGPT)[0],
        },
        ("conversations/chosen/rejected", True),
        ONE,
    ),
    (
        {"instruction": "Q", "input": "x", "chosen": "A", "rejected": "B"},
        ("instruction/chosen/rejected", True),
        preference("Q\n\nx", "A", "B"),
    ),
    ({"messages": [*said(*BEFORE), A], "rejected_response": "B"}, ("messages/rejected_response", True), TWO),
    ({"messages": MESSAGES["chosen"], "label": False}, ("messages/label", True), BAD),
    (LABELED, ("prompt/completion/label", False), GOOD),
    (
        {"prompt": said("user", "Q"), "completion": [A], "label": False},
        ("prompt/completion/label messages", True),
        BAD,
    ),
]


@pytest.fixture
def read(write_rows):
    return lambda *rows, columns=PreferenceColumns(): columns.read(write_rows("a.json", list(rows)))


@pytest.mark.parametrize(("row", "schema", "expected"), FORMS)
def test_each_form(read, row, schema, expected):
    rows = read(row)
    assert ((rows.schema.name, rows.schema.chat), rows.entries) == (schema, [expected])


@pytest.mark.parametrize(
    ("good", "change", "reason"),
    [
        (PAIR, {"rejected": " A "}, "chosen and rejected are the same"),
        (SORTED, {"response": [["O", "Q", "A"], ["O", "P", "B"]]}, "'response' has lists that differ before"),
        (PAIR, {"chosen": "\n"}, "an answer of spaces alone"),
        (PAIR, {"rejected": ""}, "an empty answer"),
        (PAIR, {"rejected": None}, "'rejected' is null, expected a text"),
        (PAIR, {"chosen": 3}, "'chosen' is not a text: 3"),
        (PAIR, {"chosen": "\ud800"}, "'chosen' has half a surrogate pair"),
        (MESSAGES, {"rejected": said("user", "P", "assistant", "B")}, "differ before their last message"),
        (MESSAGES, {"rejected": said("user", "Q")}, "the last message is no answer: user"),
        (MESSAGES, {"rejected": said("tool", "Q", "assistant", "B")}, "tool follows nothing, expected system"),
        (MESSAGES, {"rejected": "B"}, "'rejected' or 'prompt' is not a list of messages"),
        (SORTED, {"sort": [1, 1]}, "'sort' has 1 twice"),
        *(
            (SORTED, {"sort": sort}, "'sort' is not a list of finite numbers")
            for sort in (["a", "b"], [nan, 0], [0, nan], [1, -inf])
        ),
        (SORTED, {"sort": [1]}, "2 texts at 'response' and 1 at 'sort', expected two of each, or one"),
        (SORTED, {"tgt": ["x"]}, "1 texts at 'src' and 1 at 'tgt', expected one more at 'src'"),
        (SORTED, {"response": ["A"], "sort": [2]}, "'sort' is 2, expected true or 1"),
        (JUDGED, {"rejected_response": "A"}, "are the same"),
        (JUDGED, {"rejected_response": " "}, "an answer of spaces alone"),
        (LABELED, {"label": "true"}, "'label' is 'true', expected true or 1 for a desired response"),
        (LABELED, {"label": None}, "'label' is None, expected true or 1"),
        (LABELED, {"completion": " "}, "an answer of spaces alone"),
        ({"chosen": "a b", "rejected": "a c"}, {"rejected": "x y"}, "begin with different words"),
    ],
)
def test_a_broken_row_is_told_with_its_line(read, good, change, reason):
    rows = read(good, good | change)
    [fault] = rows.faults
    assert (len(rows.entries), fault.line) == (1, 2) and reason in fault.reason


def test_a_text_at_an_unknown_key_is_no_prompt_that_responses_begin_with(read):
    row = {"question": "Q", "chosen": "It is A", "rejected": "It is B"}
    with pytest.raises(DataError, match="--prompt_column KEY --chosen_column KEY --rejected_column KEY"):
        read(row)
    assert read(row, columns=PreferenceColumns("question", "chosen", "rejected")).entries[0].prompt == ONE.prompt
    with pytest.raises(DataError, match="--rejected_column: found a, b, a, expected three different keys"):
        read(row, columns=PreferenceColumns("a", "b", "a"))
    with pytest.raises(DataError, match="--prompt_column, --chosen_column, --rejected_column: give all three or none"):
        read(row, columns=PreferenceColumns("question"))


def test_parquet_holds_the_same(read, tmp_path, monkeypatch):
    monkeypatch.setattr("data_tools.formats.records.PARQUET_ROWS", 1)
    rows = [ULTRAFEEDBACK, ULTRAFEEDBACK | {"rejected": MESSAGES["chosen"]}]
    file = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    found, same = PreferenceColumns().read(file), read(*rows)
    assert found.entries == same.entries == [ONE]
    assert set(found.unused) == set(same.unused) == {"prompt_id", "messages", "score_chosen"}
    assert [(fault.line, fault.reason) for fault in found.faults] == [(2, "chosen and rejected are the same")]
    chosen = pyarrow.array([b"A", b"\xff"]).view(pyarrow.string())
    parquet.write_table(pyarrow.table({"prompt": ["Q", "Q"], "chosen": chosen, "rejected": ["B", "B"]}), file)
    found = PreferenceColumns().read(file)
    assert found.entries == [ONE]
    assert [str(fault) for fault in found.faults] == [f"{file}:2: not UTF-8 at byte 0. Convert the file to UTF-8"]
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(DataError, match="a.parquet cannot be read as Parquet: .*Copy or make it again"):
        PreferenceColumns().read(file)

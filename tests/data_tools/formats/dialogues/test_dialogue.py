"""Rows of every schema become dialogues, or say why they are none."""

import pytest

from data_tools.formats.dialogues.dialogue import Dialogue, RowError, Turn, find_schema
from data_tools.formats.errors import DataError

ONE = Dialogue((Turn("Q", "A"),))
TWO = Dialogue((Turn("Q", "A"), Turn("R", "B")), system="S")


def spoken(role: str, text: str, *words: str) -> list[dict]:
    """[{role: "user", text: "Q"}, ...] from ("user", "Q", ...)."""
    return [{role: words[i], text: words[i + 1]} for i in range(0, len(words), 2)]


@pytest.mark.parametrize(
    ("row", "schema", "chat", "dialogue"),
    [
        ({"src": "Q", "tgt": "A"}, "src/tgt", False, ONE),
        ({"src": ["Q", "R"], "tgt": ["A", "B"]}, "src/tgt", False, Dialogue(TWO.turns)),
        ({"content": "Q", "summary": "A", "id": 7}, "content/summary", False, ONE),
        ({"instruction": "Q", "output": "A"}, "instruction/output", True, ONE),
        ({"instruction": "Q", "input": "", "output": "A"}, "instruction/output", True, ONE),
        (
            {"instruction": "Q", "input": "this", "output": "A"},
            "instruction/output",
            True,
            Dialogue((Turn("Q\n\nthis", "A"),)),
        ),
        (
            {"instruction": "R", "output": "B", "system": "S", "history": [["Q", "A"]]},
            "instruction/output",
            True,
            TWO,
        ),
        ({"src": ["Q", "R"], "tgt": ["A", "B"], "system": "S"}, "src/tgt", False, TWO),
        (
            {"system": "S", "messages": spoken("role", "content", "user", "Q", "assistant", "A", "user", "R",
                                               "assistant", "B")},
            "messages",
            True,
            TWO,
        ),
        (
            {"conversations": spoken("from", "value", "system", "S", "human", "Q", "gpt", "A", "human", "R",
                                     "gpt", "B")},
            "conversations",
            True,
            TWO,
        ),
        (
            {"messages": spoken("role", "content", "system", "S", "user", "Q", "assistant", "A", "user", "R",
                                "assistant", "B")},
            "messages",
            True,
            TWO,
        ),
    ],
)  # fmt: skip
def test_each_schema_is_found_and_read(row, schema, chat, dialogue):
    found = find_schema([row, row])
    assert (found.name, found.chat) == (schema, chat)
    assert found.read(row) == dialogue


def test_named_columns_win_over_what_is_found():
    row = {"src": "no", "tgt": "no", "question": "Q", "reply": "A"}
    assert find_schema([row], "question", "reply").read(row) == ONE


def test_one_named_column_is_refused():
    with pytest.raises(DataError, match="give both or neither"):
        find_schema([{"src": "Q", "tgt": "A"}], prompt_column="src")


def test_unknown_keys_are_named_with_the_known_ones():
    with pytest.raises(DataError, match=r"first rows are question, reply; known are src, tgt; .*--prompt_column KEY"):
        find_schema([{"question": "Q", "reply": "A"}])


def test_schema_fits_half_of_the_first_rows_at_least():
    pair, other = {"src": "Q", "tgt": "A"}, {"src": "Q"}
    assert find_schema([other, pair]).name == "src/tgt"
    with pytest.raises(DataError):
        find_schema([other, pair, other])


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"src": "Q", "tgt": ""}, "an empty answer"),
        ({"src": "Q", "tgt": 7}, "'tgt' is not a text: 7"),
        ({"src": ["Q", "R"], "tgt": ["A"]}, "2 texts at 'src', but 1 at 'tgt'"),
        ({"src": [], "tgt": []}, "no question and no answer"),
        ({"src": "Q", "tgt": "\ud800"}, "'tgt' has half a surrogate pair"),
        ({"instruction": "Q", "output": ["A", "B"]}, "2 texts at 'output', expected one"),
        ({"messages": "Q"}, "'messages' is not a list of objects"),
        ({"messages": spoken("role", "content", "tool", "Q")}, "role is 'tool', expected system, user, assistant"),
        ({"messages": spoken("role", "content", "user", "Q")}, "do not take turns, ending with the assistant: user"),
        ({"messages": [{"role": "user"}]}, "no key 'content', only role"),
        ({"messages": []}, "no question and no answer"),
        ({"messages": [{"role": ["user"], "content": "Q"}]}, r"role is \['user'\], expected system, user, assistant"),
        ({"messages": [{"role": "user", "content": ["Q", "R"]}]}, "2 texts at 'content', expected one"),
        ({"messages": [{"role": "user", "content": []}]}, "0 texts at 'content', expected one"),
        ({"messages": [{"role": "user", "content": None}]}, "'content' is null, expected a text"),
        ({"src": "Q", "tgt": None}, "'tgt' is null, expected a text"),
        ({"instruction": "Q", "output": "A", "history": ["x"]}, "'history' is not a list of .question, answer.: "),
        ({"instruction": "Q", "output": "A", "history": [["q", None]]}, "'history' is null, expected a text"),
        ({"instruction": "Q", "output": "A", "system": 5}, "'system' is not a text: 5"),
        ({"instruction": "Q", "output": "A", "input": 0}, "'input' is not a text: 0"),
        ({"messages": spoken("role", "content", "system", "S"), "system": "T"}, "give two system texts"),
    ],
)
def test_row_that_is_none_says_why(row, reason):
    with pytest.raises(RowError, match=reason):
        find_schema([row]).read(row)


@pytest.mark.parametrize(
    ("whole", "row", "reason"),
    [
        ({"src": "Q", "tgt": "A"}, {"src": "Q"}, "no key 'tgt', only src"),
        ({"messages": []}, {"text": "Q"}, "no key 'messages', only text"),
        ({"conversations": []}, {"\ud800": "Q"}, r"no key 'conversations', only \\ud800"),
        ({"instruction": "Q", "output": "A"}, {}, "no key 'instruction', only none"),
    ],
)
def test_row_without_a_key_of_the_files_schema(whole, row, reason):
    with pytest.raises(RowError, match=reason):
        find_schema([whole]).read(row)


def test_keys_of_which_nothing_is_made_are_named():
    row = {"instruction": "Q", "output": "A", "history": [], "system": "", "input": "", "id": 3, "\ud800": 1}
    assert find_schema([row]).unused(row) == ["id", "\\ud800"]
    messages = [{"role": "user", "content": "Q", "name": "x"}, {"role": "assistant", "content": "A", "weight": 0}]
    assert find_schema([{"messages": messages}]).unused({"messages": messages, "tools": []}) == [
        "tools",
        "messages: name",
        "messages: weight",
    ]

"""Rows of every schema become dialogues, or say why they are none."""

import pytest

from data_tools.dialogues.dialogue import find_schema
from data_tools.dialogues.messages import RowError, plain_dialogue
from data_tools.formats.errors import DataError

ONE = plain_dialogue((("Q", "A"),))
TWO_TURNS = ("Q", "A"), ("R", "B")
TWO = plain_dialogue(TWO_TURNS, system="S")
SHAREGPT = {"role": "from", "text": "value"}


def said(*words: str, role: str = "role", text: str = "content") -> list[dict]:
    """[{"role": "user", "content": "Q"}, ...] from ("user", "Q", ...)."""
    return [{role: words[i], text: words[i + 1]} for i in range(0, len(words), 2)]


TURNS = ("user", "Q", "assistant", "A", "user", "R", "assistant", "B")
OF_SHAREGPT = said("system", "S", "human", "Q", "gpt", "A", "human", "R", "gpt", "B", **SHAREGPT)
ALPACA, OF_ALPACA = {"instruction": "Q", "output": "A"}, ("instruction/output", True)


@pytest.mark.parametrize(
    ("row", "schema", "dialogue"),
    [
        ({"src": "Q", "tgt": "A"}, ("src/tgt", False), ONE),
        ({"src": ["Q", "R"], "tgt": ["A", "B"]}, ("src/tgt", False), plain_dialogue(TWO_TURNS)),
        ({"src": ["Q", "R"], "tgt": ["A", "B"], "system": "S"}, ("src/tgt", False), TWO),
        ({"src": ["Q", "R"], "tgt": ["A", "B"], "context": {"system": "S"}}, ("src/tgt", False), TWO),
        ({"src": ["S", "Q", "R"], "tgt": ["", "A", "B"], "is_system": 1}, ("src/tgt", False), TWO),
        ({"src": "Q", "tgt": "A", "context": "none of PaddleNLP's"}, ("src/tgt", False), ONE),
        ({"content": "Q", "summary": "A", "id": 7}, ("content/summary", False), ONE),
        (ALPACA, OF_ALPACA, ONE),
        (ALPACA | {"input": ""}, OF_ALPACA, ONE),
        (ALPACA | {"input": "this"}, OF_ALPACA, plain_dialogue((("Q\n\nthis", "A"),))),
        ({"instruction": "R", "output": "B", "system": "S", "history": [["Q", "A"]]}, OF_ALPACA, TWO),
        ({"system": "S", "messages": said(*TURNS)}, ("messages", True), TWO),
        ({"messages": said("system", "S", *TURNS)}, ("messages", True), TWO),
        ({"conversations": OF_SHAREGPT}, ("conversations", True), TWO),
    ],
)
def test_each_schema_is_found_and_read(row, schema, dialogue):
    found = find_schema([row, row])
    assert ((found.name, found.chat), found.read(row)) == (schema, dialogue)


def test_which_schema_is_taken():
    """Named columns win over what is found, which fits half of the first rows at least."""
    row = {"src": "no", "tgt": "no", "question": "Q", "reply": "A"}
    assert find_schema([row], "question", "reply").read(row) == ONE
    with pytest.raises(DataError, match="give both or neither"):
        find_schema([row], prompt_column="src")
    with pytest.raises(DataError, match="--response_column: found question for both, expected two keys"):
        find_schema([row], "question", "question")
    with pytest.raises(DataError, match=r"first rows are question, reply; known are src, tgt; .*--prompt_column KEY"):
        find_schema([{"question": "Q", "reply": "A"}])
    for keys in (("question", "answer"), ("prompt", "response"), ("prompt", "completion"), ("input", "output")):
        assert find_schema([dict(zip(keys, "QA", strict=True))]).keys == keys
    assert find_schema([{"instruction": "Q", "input": "", "output": "A"}]).chat
    pair, other = {"src": "Q", "tgt": "A"}, {"src": "Q"}
    assert find_schema([other, pair]).name == "src/tgt"
    with pytest.raises(DataError):
        find_schema([other, pair, other])


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"src": "Q", "tgt": ""}, "an empty answer"),
        ({"src": "Q", "tgt": 7}, "'tgt' is not a text: 7"),
        ({"src": "Q", "tgt": None}, "'tgt' is null, expected a text"),
        ({"src": ["Q", "R"], "tgt": ["A"]}, "2 texts at 'src', but 1 at 'tgt'"),
        ({"src": [], "tgt": []}, "no question and no answer"),
        ({"src": "Q", "tgt": "A", "label": [0]}, "none of its answers is to be trained on"),
        ({"src": "Q", "tgt": "A", "label": [1, 1]}, r"'label' is \[1, 1\], expected a list of 1 numbers, 0 or 1"),
        ({"src": "Q", "tgt": "\ud800"}, "'tgt' has half a surrogate pair"),
        (ALPACA | {"output": ["A", "B"]}, "2 texts at 'output', expected one"),
        (ALPACA | {"history": ["x"]}, "'history' is not a list of .question, answer.: "),
        (ALPACA | {"history": [["q", None]]}, "'history' is null, expected a text"),
        (ALPACA | {"system": 5}, "'system' is not a text: 5"),
        (ALPACA | {"input": 0}, "'input' is not a text: 0"),
        ({"messages": "Q"}, "'messages' is not a list of objects"),
        ({"messages": said("tool", "Q")}, "tool follows nothing, expected system or developer or user: tool"),
        ({"messages": said("user", "Q")}, "the last message is no answer: user"),
        ({"messages": [{"role": "user"}]}, "no key 'content', only role"),
        ({"messages": []}, "no question and no answer"),
        ({"messages": said(["user"], "Q")}, r"role is \['user'\], expected system, developer, user, assistant, tool"),
        ({"messages": said("user", ["Q", "R"])}, r"'content' is not a text: \['Q', 'R'\]"),
        ({"messages": said("user", 5)}, "'content' is not a text: 5"),
        ({"messages": said("user", None)}, "'content' is null, expected a text"),
        ({"messages": said("system", "S"), "system": "T"}, "give two system texts"),
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
        (ALPACA, {}, "no key 'instruction', only none"),
    ],
)
def test_row_without_a_key_of_the_files_schema(whole, row, reason):
    with pytest.raises(RowError, match=reason):
        find_schema([whole]).read(row)


def test_keys_of_which_nothing_is_made_are_named():
    row = ALPACA | {"history": [], "system": "", "input": "", "id": 3, "\ud800": 1}
    assert find_schema([row]).unused(row) == ["id", "\\ud800"]
    for context, unused in (({"system": "S", "date": 5}, ["context: date"]), ("a text", ["context"])):
        row = {"src": "Q", "tgt": "A", "context": context}
        assert find_schema([row]).unused(row) == unused
    messages = [
        {"role": "user", "content": "Q", "name": "x", "date": 5},
        {"role": "assistant", "content": "A", "weight": 0},
    ]
    found = find_schema([{"messages": messages}]).unused({"messages": messages, "tools": [], "id": 3})
    assert found == ["id", "messages: date"]

"""Rows that ask: with or without an answer, they give the same ids that training gives before the answer."""

import pytest

from data_tools.dialogues.dialogue import find_schema
from data_tools.dialogues.encoding import IGNORED, Encoding, encode_dialogue
from data_tools.dialogues.messages import RowError, plain_dialogue
from data_tools.dialogues.questions import (
    encode_question,
    last_answer,
    read_questions,
    row_question,
    text_question,
)
from data_tools.formats.errors import DataError
from launch.families.encoding import find_template
from tests.data_tools.dialogues.test_dialogue import SHAREGPT, said

ROWS = [  # (with the answer, without)
    ({"src": "a b", "tgt": "c"}, {"src": "a b"}),
    ({"src": ["a", "b"], "tgt": ["c", "d"]}, {"src": ["a", "b"], "tgt": ["c"]}),
    ({"content": "a", "summary": "b"}, {"content": "a"}),
    ({"instruction": "a", "input": "b", "output": "c"}, {"instruction": "a", "input": "b"}),
    (
        {"messages": said("system", "s", "user", "q", "assistant", "a")},
        {"messages": said("system", "s", "user", "q")},
    ),
    (
        {"conversations": said("human", "q", "gpt", "a", "human", "r", "gpt", "b", **SHAREGPT)},
        {"conversations": said("human", "q", "gpt", "a", "human", "r", **SHAREGPT)},
    ),
]


def encoding(template=None, src_length=1000) -> Encoding:
    return Encoding(template, lambda text: [ord(one) for one in text], (1, 2), 0, src_length, 1000)


@pytest.mark.parametrize(("whole", "asked"), ROWS)
@pytest.mark.parametrize("name", [None, "llama"])
def test_a_question_is_encoded_as_in_training(write_rows, whole, asked, name):
    template = find_template(name, None, {}) if name else None
    [trained] = encode_dialogue(find_schema([whole]).read(whole), encoding(template))
    start, end = last_answer(trained.labels)
    assert end == len(trained.ids) and IGNORED not in trained.labels[start:]
    for question, row in zip(read_questions(write_rows("rows.json", [whole, asked])), (whole, asked), strict=True):
        assert encode_question(question.dialogue, encoding(template)) == (trained.ids[:start], False)
        assert question.row == row and question.chat == find_schema([whole]).chat


def test_a_long_question_keeps_its_end_and_a_column_may_be_named(write_rows):
    ids, cut = encode_question(text_question("abcdef").dialogue, encoding(src_length=5))
    assert (ids, cut) == ([1, 2, *map(ord, "def")], True)
    file = write_rows("rows.json", [{"q": "why", "src": "no"}])
    [question] = read_questions(file, "q")
    assert question.dialogue == plain_dialogue((), asked="why")
    with pytest.raises(DataError, match=r"rows.json:1: no key 'p', only q, src"):
        read_questions(file, "p")


def test_rows_that_ask_nothing_are_named_with_their_lines(tmp_path):
    file = tmp_path / "rows.json"
    file.write_text('{"src": "a"}\n{"answer": 1}\nnot JSON\n{"messages": []}\n')
    with pytest.raises(DataError) as error:
        read_questions(file)
    for words in ("rows.json:2: the keys of the first rows are answer", "rows.json:3: not JSON", "rows.json:4: no que"):
        assert words in str(error.value)
    file.write_text("\n")
    with pytest.raises(DataError, match="rows.json: no rows"):
        read_questions(file)
    for row, reason in [  # values of other types
        ({"messages": [{"role": ["user"], "content": "Q"}]}, "role is .'user'., expected system, developer, user"),
        ({"src": ["a", "b"], "tgt": 5}, "2 texts at 'src', but 0 at 'tgt' before the last question"),
        ({"src": ["a", "b"], "tgt": "no list"}, "2 texts at 'src', but 0 at 'tgt' before the last question"),
    ]:
        with pytest.raises(RowError, match=reason):
            row_question(row)

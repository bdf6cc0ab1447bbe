"""Rows of each benchmark, as published, to the columns that lm-eval's tasks read; what is damaged is refused."""

import json

import pytest

from data_tools.formats.benchmarks.files import PLACE, SUBJECT, files_of, find_form, read_benchmark
from data_tools.formats.errors import DataError

SIX = "2+2?,1,2,3,4,D\n"
ABCD = {"A": "1", "B": "2", "C": "3", "D": "4"}
SPANS = {"id": "7", "question": "What floats?", "answers": {"text": ["Ice", "Ice"], "answer_start": [0, 0]}}
WET = {"text": ["fire", "the sea"], "label": ["1", "2"]}
TURNS = [{"role": "user", "content": "Ice floats?"}, {"role": "assistant", "content": "Yes."}]
# From a form to a row as it is published, and what of it becomes another.
ROWS = {
    "mmlu": ({"question": "2+2?", "subject": "law", "choices": ["1", "2", "3", "4"], "answer": 3}, {}),
    "ceval": ({"id": 0, "question": "2+2?", **ABCD, "answer": "D", "explanation": "x"}, {}),
    "cmmlu": ({"Question": "2+2?", **ABCD, "Answer": "B"}, {}),
    "arc": ({"question": "Wet?", "choices": WET, "answerKey": "2"}, {}),
    "hellaswag": ({"ctx_a": "He", "ctx_b": "s", "activity_label": "R", "endings": ["a", "b"], "label": "0"}, {}),
    "boolq": ({"passage": "Ice floats.", "question": "does ice float", "answer": True}, {"label": 1}),
    "piqa": ({"goal": "Open", "sol1": "pull it", "sol2": "eat it", "label": 0}, {}),
    "winogrande": ({"sentence": "so _ ran.", "option1": "Ann", "option2": "Bea", "answer": "2"}, {}),
    "gsm8k": ({"question": "2 and 2?", "answer": "2 + 2 = <<2+2=4>>4\n#### 4"}, {}),
    "squad": (SPANS | {"title": "Ice", "context": "Chinese: 元朝. Ice floats."}, {"answers": ["Ice"]}),
    "cmrc": (SPANS | {"context": "冰浮在水上。"}, {"title": "", "answers": ["Ice"]}),
    "qa": ({"question": "What floats?", "answers": ["ice", "frozen water"]}, {"context": ""}),
    "pairs": ({"src": "Ice floats?", "tgt": "Yes."}, {"question": "Ice floats?", "answers": ["Yes."]}),
    "advertisegen": ({"content": "类型#裤", "summary": "裤子。"}, {"question": "类型#裤", "answers": ["裤子。"]}),
    "chat": ({"messages": TURNS}, {"row_before": [], "question": "Ice floats?", "answers": ["Yes."]}),
}
LEFT = {"id", "messages", "explanation", "src", "tgt", "content", "summary", "subject"}


def write(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path, form=None, split=None) -> list[dict]:
    [files] = files_of(path).values() if split is None else [files_of(path)[split]]
    return read_benchmark(files, form or find_form(files))


@pytest.mark.parametrize("form", ROWS)
def test_each_form_is_found_and_read(form, tmp_path):
    row, changes = ROWS[form]
    file = write(tmp_path / "law_val.jsonl", row)
    assert find_form([file]) == form
    expected = {key: value for key, value in row.items() if key not in LEFT and key != "answer"} | changes
    [found] = read(file)
    assert (found.pop(PLACE), found.pop(SUBJECT)) == (f"{file}:1", "law")
    assert {key: value for key, value in found.items() if key != "answer"} == expected
    assert found.get("answer") == (row.get("answer") if form != "boolq" else None)


def test_original_files_of_mmlu_arc_piqa_and_squad(tmp_path):
    (tmp_path / "law_test.csv").write_text(SIX)
    [found] = read(tmp_path / "law_test.csv")
    assert (found["choices"], found["answer"], found[SUBJECT]) == (["1", "2", "3", "4"], 3, "law")
    stem = {"stem": "Wet?", "choices": [{"text": "fire", "label": "1"}, {"text": "the sea", "label": "2"}]}
    [found] = read(write(tmp_path / "arc_dev.jsonl", {"question": stem, "answerKey": "2"}))
    assert (found["question"], found["choices"], found["answerKey"]) == ("Wet?", WET, "2")
    file = write(tmp_path / "valid.jsonl", *[{"goal": "Open", "sol1": "pull", "sol2": "eat"}] * 2)
    (tmp_path / "valid-labels.lst").write_text("0\n1\n")
    assert [each["label"] for each in read(file)] == [0, 1]
    asked = [
        {"id": "1", "question": "What floats?", "answers": [{"text": "Ice", "answer_start": 0}]},
        {"id": "2", "question": "What sinks?", "answers": [], "is_impossible": True},
    ]
    whole = {"version": "2", "data": [{"title": "Ice", "paragraphs": [{"context": "Ice floats.", "qas": asked}]}]}
    for indent in (None, 1):
        (tmp_path / "dev-v2.0.json").write_text(json.dumps(whole, indent=indent))
        first, second = read(tmp_path / "dev-v2.0.json")
        assert (first["title"], first["answers"], second["answers"]) == ("Ice", ["Ice"], ["unanswerable", ""])
        assert second[PLACE] == f"{tmp_path / 'dev-v2.0.json'}:2"


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    piqa = {key: pyarrow.array([value]) for key, value in ROWS["piqa"][0].items()}
    piqa |= {"label": pyarrow.array([1], pyarrow.int8()), "goal": piqa["goal"].cast(pyarrow.large_string())}
    parquet.write_table(pyarrow.table(piqa), tmp_path / "test-00000-of-00001.parquet")
    assert [(each["goal"], each["label"]) for each in read(tmp_path)] == [("Open", 1)]
    piqa["goal"] = pyarrow.array([b"\xff\xfe"]).view(pyarrow.string())
    parquet.write_table(pyarrow.table(piqa), tmp_path / "val.parquet")
    with pytest.raises(DataError, match=r"val\.parquet:1: not UTF-8 at byte 0\. Convert the file to UTF-8\.$"):
        read(tmp_path / "val.parquet")


def changed(form: str, **values) -> dict:
    """The row of a form, without those of its values that are None."""
    return {key: value for key, value in (ROWS[form][0] | values).items() if value is not None}


NO_ANSWER = "no answer, as in files for a leaderboard. Take a split that has them: --split val."
FAULTS = [
    ("mmlu", ":1: answer: found 'E', expected one of 0, 1, 2, 3.", {"answer": "E"}),
    ("mmlu", ":1: answer: found True, expected one of 0, 1, 2, 3.", {"answer": True}),
    ("mmlu", ":1: choices: found 3, expected 4.", {"choices": ["1", "2", "3"]}),
    ("mmlu", ":1: subject: found 5, expected a text, or none.", {"subject": 5}),
    ("ceval", f":1: answer: {NO_ANSWER}", {"answer": ""}),
    ("ceval", ":1: E: a choice that ceval does not ask. Take the task of lm-eval", {"E": "5"}),
    (
        "cmmlu",
        ":1: Answer: found '2', expected one of A, B, C, D; numbers from 1 are those of KMMLU, kmmlu=PATH.",
        {"Answer": "2"},
    ),
    ("hellaswag", f":1: label: {NO_ANSWER}", {"label": None}),
    ("hellaswag", ":1: ctx_b: found 3, expected a text, or none.", {"ctx_b": 3}),
    ("piqa", f":1: label: {NO_ANSWER}", {"label": -1}),
    ("piqa", f":1: label: {NO_ANSWER}", {"label": ""}),
    ("winogrande", ":1: answer: found '12', expected one of 1, 2.", {"answer": "12"}),
    ("piqa", ":1: label: found 2, expected one of 0, 1.", {"label": 2}),
    ("piqa", ":1: goal: found ' ', expected a text.", {"goal": " "}),
    ("boolq", ":1: answer: found 'maybe', expected one of false, true, 0, 1.", {"answer": "maybe"}),
    ("arc", ":1: choices: 2 texts and 1 labels.", {"choices": {"text": ["a", "b"], "label": ["1"]}}),
    ("arc", ":1: text: found [1, 2], expected a list of texts.", {"choices": {"text": [1, 2], "label": ["1", "2"]}}),
    ("arc", ":1: choices: found ['a', 'b'], expected an object with text and label.", {"choices": ["a", "b"]}),
    ("arc", ":1: answerKey: found '3', expected one of 1, 2.", {"answerKey": "3"}),
    ("squad", ":1: answers: found {}, expected an object with a list text.", {"answers": {}}),
    ("qa", ":1: options: a choice that qa does not ask.", {"options": ["a", "b"]}),
    ("pairs", f":1: src: found {['x' * 99]!s:.40}, expected a text.", {"src": ["x" * 99]}),
    ("chat", ":1: messages: found ['assistant'], expected the roles user and assistant in tu", {"messages": TURNS[1:]}),
    ("chat", ":1: messages: found ['user', 'assistant', 'user'], expected", {"messages": [*TURNS, TURNS[0]]}),
    ("chat", ":1: content: found 5, expected a text", {"messages": [{"role": "system", "content": 5}, *TURNS]}),
    ("gsm8k", ":1: answer: no #### before a number at the end: '#### 4 apples'.", {"answer": "#### 4 apples"}),
    ("gsm8k", r":1: half a surrogate pair (\ud800 to \udfff) is no character.", {"question": "\ud800"}),
]


@pytest.mark.parametrize(("form", "message", "values"), FAULTS)
def test_damaged_rows_are_refused_with_their_place(form, message, values, tmp_path):
    file = write(tmp_path / "x_val.jsonl", changed(form, **values))
    with pytest.raises(DataError) as error:
        read(file, form)
    assert f"{file}{message}" in str(error.value)


def test_rows_with_choices_that_no_form_asks_are_of_none(tmp_path):
    """MMLU-Pro's ten options; five columns of choices."""
    options = {"question": "2+2?", "options": list("abcdefghij"), "answer": "B", "answer_index": 1}
    for row in (options, changed("ceval", E="5"), {"x": 1}):
        with pytest.raises(
            DataError, match="the keys .* are those of no benchmark known here: cmrc .* task of lm-eval"
        ):
            find_form([write(tmp_path / "x_test.jsonl", row)])
    with pytest.raises(DataError, match=r"x_test.jsonl: no questions. Name a file that has some"):
        find_form([write(tmp_path / "x_test.jsonl")])


@pytest.mark.parametrize(
    ("form", "values", "key", "value"),
    [
        ("piqa", {"label": 1.0}, "label", 1),  # pandas makes floats of a column in which some are missing
        ("piqa", {"label": "1"}, "label", 1),
        ("boolq", {"answer": "False"}, "label", 0),
        ("boolq", {"answer": None, "label": 0}, "label", 0),
        ("hellaswag", {"ctx_b": None}, "ctx_b", ""),
    ],
)
def test_values_of_other_types_are_taken(form, values, key, value, tmp_path):
    [found] = read(write(tmp_path / "x_val.jsonl", changed(form, **values)), form)
    assert found[key] == value


def test_splits_subjects_and_configurations_of_folders(tmp_path):
    """As data sets lie in a clone from a hub, or in the archives of their authors."""
    for subject in ("accountant", "law"):
        write(tmp_path / "ceval" / subject / "val-00000-of-00001.jsonl", ROWS["ceval"][0])
    assert [each[SUBJECT] for each in read(tmp_path / "ceval")] == ["accountant", "law"]
    for folder in ("all", "law"):
        write(tmp_path / "mmlu" / folder / "test-00000-of-00001.jsonl", ROWS["mmlu"][0])
    with pytest.raises(DataError, match="the same question as in .*/all/test-00000-of-00001.jsonl. Name the folder"):
        read(tmp_path / "mmlu")
    for folder in ("ARC-Easy", "ARC-Challenge"):
        write(tmp_path / "arc" / folder / "test.jsonl", changed("arc", question=folder))
    with pytest.raises(DataError, match="ARC-Challenge, .*ARC-Easy: several configurations of arc"):
        read(tmp_path / "arc")
    for name, rows in (
        ("test/law_test.csv", SIX),
        ("auxiliary_train/mc_test.csv", "other?,1,2,3,4,D\n"),
        (".x/y_test.csv", "more?,1,2,3,4,D\n"),
    ):
        (tmp_path / "six" / name).parent.mkdir(parents=True)
        (tmp_path / "six" / name).write_text(rows)
    assert [each[SUBJECT] for each in read(tmp_path / "six")] == ["law"]
    with pytest.raises(DataError, match="neither a file nor a folder"):
        files_of(tmp_path / "none")
    with pytest.raises(DataError, match=r"x\.txt: unknown kind of file\. Known are \.csv, \.json, \.jsonl, \."):
        files_of(write(tmp_path / "x.txt"))


def test_labels_beside_a_file_are_as_many_as_its_rows(tmp_path):
    file = write(tmp_path / "valid.jsonl", *[{"goal": "Open", "sol1": "pull", "sol2": "eat"}] * 2)
    for content, message in (
        (b"0\n", "valid-labels.lst: found 1 labels, expected 2, as many as .*valid.jsonl has rows. Copy both"),
        (b"\xff\n1\n", "valid-labels.lst: not UTF-8 at byte 0"),
    ):
        (tmp_path / "valid-labels.lst").write_bytes(content)
        with pytest.raises(DataError, match=message):
            read(file)


def test_csv_as_spreadsheets_write_it(tmp_path):
    """With a BOM, quotes and line breaks within values, and blank lines."""
    text = '\ufeffid,question,A,B,C,D,answer\n0,"a ""b"",\nc",1,2,3,4,A\n\n1,x,1,2,3,4,B\n\n'
    (tmp_path / "x_val.csv").write_text(text)
    first, second = read(tmp_path / "x_val.csv")
    assert first["question"] == 'a "b",\nc'
    assert [each[PLACE].rpartition(":")[2] for each in (first, second)] == ["2", "5"]


BROKEN_CSV = {
    ":2: unexpected end of data. Mend the row; is a quote missing?": f'{SIX}2+2?,1,2,3,4,"D\n{SIX * 20}',
    ":3: ',' expected after '\"'. Mend the row; is a quote missing?": f'{SIX * 2}2+2?,1,2,3,4,"D\n2+2?,"1",2,3,4,D\n',
    ":2: field larger than field limit (131072). Mend the row;": f'{SIX}"2+2?,1,2,3,4,D\n{SIX * 20_000}',
    ":2: found 5 columns, expected 6. Mend the row": f"{SIX}2+2?,1,2,3,D\n",
    ": not UTF-8 at byte 17, can be read as GB18030. Convert the file: `iconv -f GB18030": f"{SIX}水火?,1,2,3,4,D\n",
}


@pytest.mark.parametrize("message", BROKEN_CSV)
def test_a_csv_file_is_read_whole_or_refused_with_the_line_where_the_row_begins(message, tmp_path):
    file, content = tmp_path / "x_test.csv", BROKEN_CSV[message]
    file.write_text(content, encoding="gb18030" if "GB18030" in message else "utf-8")
    with pytest.raises(DataError) as error:
        read(file, "mmlu")
    assert f"{file}{message}" in str(error.value)


def test_whole_numbers_of_a_csv_file_are_numbers_to_lm_evals_tasks(tmp_path):
    (tmp_path / "x_test.csv").write_text("question,answer,year,code\na,2,1999,01\nb,-4,x,02\n")
    found = [
        {key: row[key] for key in ("answer", "year", "code")} for row in read_benchmark([tmp_path / "x_test.csv"], None)
    ]
    assert found == [{"answer": 2, "year": "1999", "code": "01"}, {"answer": -4, "year": "x", "code": "02"}]

"""Rows of each benchmark, as published, to the texts that lm-evaluation-harness asks with them."""

import json

import pytest

from data_tools.formats.benchmarks.files import read_benchmark
from data_tools.formats.errors import DataError

MMLU_ABOUT = "The following are multiple choice questions (with answers) about high school law.\n\n"
SIX = "2+2?,1,2,3,4,D\n"
LETTERS = "2+2?\nA. 1\nB. 2\nC. 3\nD. 4\n"
SPANS = {"id": "7", "answers": {"text": ["Ice", "Ice"], "answer_start": [0, 0]}}
ROWS = {
    "mmlu": (
        {"question": "2+2?", "subject": "high_school_law", "choices": ["1", "2", "3", "4"], "answer": 3},
        MMLU_ABOUT,
        [(f"{LETTERS}Answer:", letter) for letter in "ABCD"],
        3,
    ),
    "ceval": (
        {"id": 0, "question": "2+2?", "A": "1", "B": "2", "C": "3", "D": "4", "answer": "D", "subject": "accountant"},
        "以下是中国关于注册会计师的单项选择题，请选出其中的正确答案。\n\n",
        [(f"{LETTERS}答案：", letter) for letter in "ABCD"],
        3,
    ),
    "cmmlu": (
        {"Question": "2+2?", "A": "1", "B": "2", "C": "3", "D": "4", "Answer": "B", "subject": "agronomy"},
        "以下是关于农学的单项选择题，请直接给出正确答案的选项。\n\n",
        [(f"{LETTERS}答案：", letter) for letter in "ABCD"],
        1,
    ),
    "arc": (
        {"question": "Wet?", "choices": {"text": ["fire", "the sea"], "label": ["1", "2"]}, "answerKey": "2"},
        "",
        [("Question: Wet?\nAnswer:", "fire"), ("Question: Wet?\nAnswer:", "the sea")],
        1,
    ),
    "hellaswag": (
        {
            "ctx_a": "He  sits.",
            "ctx_b": "he",
            "activity_label": "Rest",
            "endings": ["sleeps [step] well.", "stands [title] Go"],
            "label": "0",
        },
        "",
        [("Rest: He sits. He", "sleeps well."), ("Rest: He sits. He", "stands. Go")],
        0,
    ),
    "boolq": (
        {"passage": "Ice floats.", "question": "does ice float", "answer": True},
        "",
        [("Ice floats.\nQuestion: does ice float?\nAnswer:", word) for word in ("no", "yes")],
        1,
    ),
    "piqa": (
        {"goal": "Open", "sol1": "pull it", "sol2": "eat it", "label": 0},
        "",
        [("Question: Open\nAnswer:", "pull it"), ("Question: Open\nAnswer:", "eat it")],
        0,
    ),
    "winogrande": (
        {"sentence": "Ann saw Bea, so _ ran.", "option1": "Ann", "option2": "Bea", "answer": "2"},
        "",
        [("Ann saw Bea, so Ann", "ran."), ("Ann saw Bea, so Bea", "ran.")],
        1,
    ),
}

ROWS |= {
    "gsm8k": (
        {"question": "2 and 2?", "answer": "2 + 2 = <<2+2=4>>4\n#### 4"},
        "",
        [("Question: 2 and 2?\nAnswer:", "2 + 2 = <<2+2=4>>4\n#### 4")],
        0,
    ),
    "squad": (
        SPANS | {"title": "Ice", "context": "Ice floats.", "question": "What floats?"},
        "",
        [("Title: Ice\n\nBackground: Ice floats.\n\nQuestion: What floats?\n\nAnswer:", "Ice")],
        0,
    ),
    "cmrc": (
        SPANS | {"context": "冰浮在水上。", "question": "什么浮着？"},
        "",
        [("语境: 冰浮在水上。\n\n问题: 什么浮着？\n\n回答:", "Ice")],
        0,
    ),
    "qa": (
        {"context": "Ice floats.", "question": "What floats?", "answers": ["ice", "frozen water"]},
        "",
        [("Ice floats.\n\nQuestion: What floats?\nAnswer:", answer) for answer in ("ice", "frozen water")],
        0,
    ),
}


ROWS |= {
    "pairs": ({"src": "Ice floats?", "tgt": "Yes."}, "", [("Ice floats?", "Yes.")], 0),
    "advertisegen": ({"content": "类型#裤", "summary": "裤子。"}, "", [("类型#裤", "裤子。")], 0),
}

# An English context may quote Chinese.
QUOTES = SPANS | {"title": "", "context": "Chinese: 元朝. Ice floats.", "question": "What floats?"}


def write(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("form", ROWS)
def test_each_form_is_found_and_asked_as_the_harness_asks(form, tmp_path):
    row, about, pairs, answer = ROWS[form]
    name, [asked] = read_benchmark(write(tmp_path / "x_val.jsonl", row), None, None, 0)
    assert (name, asked.before, list(asked.question.pairs)) == (form, about, pairs)
    assert asked.question.answer == answer
    assert asked.place == f"{tmp_path / 'x_val.jsonl'}:1"


def test_an_english_context_that_quotes_chinese_is_squad(tmp_path):
    assert read_benchmark(write(tmp_path / "x_val.jsonl", QUOTES), None, None, 0)[0] == "squad"


@pytest.mark.parametrize("end", ["#### ", "#### four", "#### 4 apples", "#### ."])
def test_an_answer_of_gsm8k_ends_with_its_number(tmp_path, end):
    rows = [{"question": f"{end}?", "answer": f"so\n{end}"} for end in ("#### 1,250", "#### -4\n", "#### .5", end)]
    with pytest.raises(DataError, match=r":4: answer: no #### before a number at the end: 'so\\n####"):
        read_benchmark(write(tmp_path / "x_val.jsonl", *rows), "gsm8k", None, 0)


def test_examples_are_the_first_of_the_subject_and_csv_needs_no_names(tmp_path):
    for split, rows in (("dev", "1+1?,2,3,4,5,A\n1+2?,1,3,9,8,B\n"), ("test", SIX)):
        (tmp_path / split).mkdir()
        (tmp_path / split / f"high_school_law_{split}.csv").write_text(rows)
        (tmp_path / split / f"logic_{split}.csv").write_text("never shown?,1,2,3,4,C\n" * 2)
    _, asked = read_benchmark(tmp_path, "mmlu", None, 2)
    assert len(asked) == 3
    assert asked[0].before == (
        f"{MMLU_ABOUT}1+1?\nA. 2\nB. 3\nC. 4\nD. 5\nAnswer: A\n\n1+2?\nA. 1\nB. 3\nC. 9\nD. 8\nAnswer: B\n\n"
    )
    assert asked[0].question.pairs[0][0] == f"{LETTERS}Answer:"


def test_original_files_of_arc_and_piqa(tmp_path):
    stem = {"stem": "Wet?", "choices": [{"text": "fire", "label": "A"}, {"text": "sea", "label": "B"}]}
    _, [asked] = read_benchmark(write(tmp_path / "arc_dev.jsonl", {"question": stem, "answerKey": "B"}), None, None, 0)
    assert asked.question.pairs[1] == ("Question: Wet?\nAnswer:", "sea") and asked.question.answer == 1
    file = write(tmp_path / "valid.jsonl", *[{"goal": "Open", "sol1": "pull", "sol2": "eat"}] * 2)
    (tmp_path / "valid-labels.lst").write_text("0\n1\n")
    assert [each.question.answer for each in read_benchmark(file, None, None, 0)[1]] == [0, 1]


@pytest.mark.parametrize("indent", [None, 1])
def test_original_files_of_squad(indent, tmp_path):
    asked = [
        {"id": "1", "question": "What floats?", "answers": [{"text": "Ice", "answer_start": 0}]},
        {"id": "2", "question": "What sinks?", "answers": [], "is_impossible": True},
    ]
    whole = {"version": "2", "data": [{"title": "Ice", "paragraphs": [{"context": "Ice floats.", "qas": asked}]}]}
    (tmp_path / "dev-v2.0.json").write_text(json.dumps(whole, indent=indent))
    name, [first, second] = read_benchmark(tmp_path / "dev-v2.0.json", None, None, 0)
    assert (name, list(first.question.pairs)) == ("squad", ROWS["squad"][2])
    assert [answer for _, answer in second.question.pairs] == ["unanswerable", ""]
    assert second.place == f"{tmp_path / 'dev-v2.0.json'}:2"


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist([ROWS["mmlu"][0]]), tmp_path / "test-00000-of-00001.parquet")
    name, [asked] = read_benchmark(tmp_path, None, None, 0)
    assert (name, list(asked.question.pairs)) == ("mmlu", ROWS["mmlu"][2])
    types = {"goal": pyarrow.large_string(), "sol1": pyarrow.dictionary(pyarrow.int8(), pyarrow.string())}
    piqa = {
        key: pyarrow.array([value], types.get(key, pyarrow.int8() if key == "label" else None))
        for key, value in ROWS["piqa"][0].items()
    }
    parquet.write_table(pyarrow.table(piqa), tmp_path / "piqa.parquet")
    _, [asked] = read_benchmark(tmp_path / "piqa.parquet", None, None, 0)
    assert list(asked.question.pairs) == ROWS["piqa"][2]
    row = {key: pyarrow.array([value]) for key, value in ROWS["mmlu"][0].items()}
    row["question"] = pyarrow.array([b"\xff\xfe"]).view(pyarrow.string())
    parquet.write_table(pyarrow.table(row), tmp_path / "val.parquet")
    with pytest.raises(DataError, match=r"val\.parquet:1: not UTF-8 at byte 0\. Convert the file to UTF-8\.$"):
        read_benchmark(tmp_path / "val.parquet", None, None, 0)


def changed(form: str, **values) -> list[dict]:
    """The row of a form, without those of its values that are None."""
    return [{key: value for key, value in (ROWS[form][0] | values).items() if value is not None}]


NO_ANSWER = "no answer, as in files for a leaderboard. Take a split that has them: --split val."
FAULTS = [
    (":2: answer: found 'E', expected 0 to 3.", [ROWS["mmlu"][0], *changed("mmlu", answer="E")]),
    (":1: answer: found 7, expected 0 to 3.", changed("mmlu", answer=7)),
    (":1: answer: found True, expected 0 to 3.", changed("mmlu", answer=True)),
    (":1: choices: found 3, expected 4.", changed("mmlu", choices=["1", "2", "3"])),
    (
        ":1: choices: found ['1', None, '3', '4'], expected a list of texts.",
        changed("mmlu", choices=["1", None, "3", "4"]),
    ),
    (":1: choices: found 7, expected a list of texts.", changed("mmlu", choices=7)),
    (":1: subject: found 5, expected a text, or none.", changed("mmlu", subject=5)),
    (f":1: answer: {NO_ANSWER}", changed("ceval", answer="")),
    (f":1: answer: {NO_ANSWER}", changed("ceval", answer=None)),
    (f":1: Answer: {NO_ANSWER}", changed("cmmlu", Answer=None)),
    (f":1: label: {NO_ANSWER}", changed("hellaswag", label=None)),
    (f":1: label: {NO_ANSWER}", changed("piqa", label=-1)),
    (f":1: label: {NO_ANSWER}", changed("boolq", answer=None)),
    (":1: label: found 2, expected 0 to 1.", changed("piqa", label=2)),
    (":1: label: found 0.5, expected 0 to 1.", changed("piqa", label=0.5)),
    (":1: goal: found ' ', expected a text.", changed("piqa", goal=" ")),
    (":1: answer: found 'maybe', expected true or false.", changed("boolq", answer="maybe")),
    (":1: ctx_b: found 3, expected a text, or none.", changed("hellaswag", ctx_b=3)),
    (":1: endings: found 'ab', expected a list of texts.", changed("hellaswag", endings="ab")),
    (":1: choice 1, counted from 0, has no text.", changed("hellaswag", endings=["sleeps", "[header]"])),
    (":1: sentence: nothing behind the gap, which is what is scored.", changed("winogrande", sentence="It was _")),
    (":1: sentence: no gap, _.", changed("winogrande", sentence="No gap.")),
    (":1: answer: found '3', expected 1 to 2.", changed("winogrande", answer="3")),
    (":1: choices: 2 texts and 1 labels.", changed("arc", choices={"text": ["a", "b"], "label": ["1"]})),
    (
        ":1: text: found [1, 2], expected a list of texts.",
        changed("arc", choices={"text": [1, 2], "label": ["1", "2"]}),
    ),
    (":1: choices: found ['a', 'b'], expected an object with text and label.", changed("arc", choices=["a", "b"])),
    (":1: answerKey: found '3', expected one of 1, 2.", changed("arc", answerKey="3")),
    (":1: answers: found {}, expected an object with a list text.", changed("squad", answers={})),
    (":1: text: found [3], expected a list of texts.", changed("squad", answers={"text": [3]})),
    (":1: title: found 3, expected a text, or none.", changed("squad", title=3)),
    (":1: answers: found ['ice', 3], expected a list of texts.", changed("qa", answers=["ice", 3])),
    (":1: src: found ['a', 'b'], expected a text.", changed("pairs", src=["a", "b"])),
    (":2: answer: no #### before a number at the end: '4'.", [ROWS["gsm8k"][0], *changed("gsm8k", answer="4")]),
    (f":1: src: found {['x' * 99]!s:.40}, expected a text.", changed("pairs", src=["x" * 99])),
    ("x_val.jsonl: the keys x are those of no benchmark known here: cmrc (context, question, answers);", [{"x": 1}]),
    ("x_val.jsonl: no questions. Name a file that has some.", []),
]


@pytest.mark.parametrize(("message", "rows"), FAULTS, ids=[message for message, _ in FAULTS])
def test_broken_rows_are_named_with_their_place(message, rows, tmp_path):
    with pytest.raises(DataError) as error:
        read_benchmark(write(tmp_path / "x_val.jsonl", *rows), None, None, 0)
    assert message in str(error.value) and str(tmp_path) in str(error.value)


def test_lines_that_are_no_rows_are_named(tmp_path):
    file = write(tmp_path / "x_val.jsonl", ROWS["qa"][0])
    for line, message in (
        ('{"question": "x"', ":3: not JSON, Expecting ',' delimiter at column 17. Mend or remove the line."),
        ("3", ":3: a JSON int, expected an object. Mend or remove the line."),
        (r'{"question": "\ud800", "answer": "y"}', r":3: half a surrogate pair (\ud800 to \udfff) is no character."),
    ):
        broken = tmp_path / "broken_val.jsonl"
        broken.write_text(f"{file.read_text()}\n{line}\n")
        with pytest.raises(DataError) as error:
            read_benchmark(broken, None, None, 0)
        assert f"{broken}{message}" in str(error.value)
    with pytest.raises(DataError, match=r"x\.jsonl\.gz: unknown kind of file\. Known are \.csv, \.json, \.jsonl, \."):
        read_benchmark(write(tmp_path / "x.jsonl.gz"), None, None, 0)


@pytest.mark.parametrize(
    ("form", "values", "answer"),
    [
        ("piqa", {"label": 1.0}, 1),  # pandas makes floats of a column in which some are missing
        ("piqa", {"label": "1"}, 1),
        ("boolq", {"answer": "True"}, 1),
        ("boolq", {"answer": None, "label": 0}, 0),
        ("hellaswag", {"ctx_b": None}, 0),
        ("arc", {"choices": [{"text": "a", "label": "1"}, {"text": "b", "label": "2"}]}, 1),
    ],
)
def test_values_of_other_types_are_taken(form, values, answer, tmp_path):
    file = write(tmp_path / "x_val.jsonl", *changed(form, **values))
    assert read_benchmark(file, None, None, 0)[1][0].question.answer == answer


def test_subjects_and_configurations_of_folders(tmp_path):
    """As data sets lie in a clone from a hub: a folder for each subject or configuration, and shards in it."""
    bare = {key: value for key, value in ROWS["ceval"][0].items() if key != "subject"}
    for subject in ("accountant", "law"):
        write(tmp_path / "ceval" / subject / "val-00000-of-00001.jsonl", bare)
    _, asked = read_benchmark(tmp_path / "ceval", "ceval", None, 0)
    assert [each.question.subject for each in asked] == ["accountant", "law"]
    assert asked[0].before == ROWS["ceval"][1]
    for folder in ("all", "high_school_law"):
        write(tmp_path / "mmlu" / folder / "test-00000-of-00001.jsonl", ROWS["mmlu"][0])
    with pytest.raises(
        DataError, match="the same question as in .*/all/test-00000-of-00001.jsonl. Name the folder of one"
    ):
        read_benchmark(tmp_path / "mmlu", None, None, 0)
    for folder, answer in (("ARC-Easy", "1"), ("ARC-Challenge", "2")):
        write(tmp_path / "arc" / folder / "test.jsonl", ROWS["arc"][0] | {"question": folder, "answerKey": answer})
    with pytest.raises(DataError, match="ARC-Challenge, .*ARC-Easy: several configurations of arc"):
        read_benchmark(tmp_path / "arc", None, None, 0)


def test_missing_examples_and_splits_are_refused(tmp_path):
    file = write(tmp_path / "x_val.jsonl", ROWS["mmlu"][0])
    with pytest.raises(DataError, match="no files to take 5 examples from"):
        read_benchmark(file, None, None, 5)
    with pytest.raises(DataError, match="no files of the split test; there are those of val. Name one of these: --spl"):
        read_benchmark(file, None, "test", 0)
    write(tmp_path / "x_dev.jsonl", ROWS["mmlu"][0])
    expected = ":1: --num_fewshot: found 2, there are 1 examples of the subject 'high_school_law'. Ask for fewer, or"
    with pytest.raises(DataError, match=expected):
        read_benchmark(tmp_path, None, "val", 2)
    with pytest.raises(DataError, match="neither a file nor a folder"):
        read_benchmark(tmp_path / "none", None, None, 0)
    write(tmp_path / "other" / "train.jsonl", ROWS["mmlu"][0])
    with pytest.raises(DataError, match="no files of the split test, val, dev; there are those of train. Name one"):
        read_benchmark(tmp_path / "other", None, None, 0)


def test_labels_beside_a_file_are_as_many_as_its_rows(tmp_path):
    file = write(tmp_path / "valid.jsonl", *[{"goal": "Open", "sol1": "pull", "sol2": "eat"}] * 2)
    labels = tmp_path / "valid-labels.lst"
    for content, message in (
        (b"0\n", "valid-labels.lst: found 1 labels, expected 2, as many as .*valid.jsonl has rows. Copy both"),
        (b"0\n1\n1\n", "found 3 labels, expected 2,"),
        (b"\xff\n1\n", "valid-labels.lst: not UTF-8 at byte 0"),
    ):
        labels.write_bytes(content)
        with pytest.raises(DataError, match=message):
            read_benchmark(file, None, None, 0)


def test_csv_as_spreadsheets_write_it(tmp_path):
    """With a BOM, quotes and line breaks within values, and blank lines."""
    text = '\ufeffid,question,A,B,C,D,answer\n0,"a ""b"",\nc",1,2,3,4,A\n\n1,x,1,2,3,4,B\n\n'
    (tmp_path / "x_val.csv").write_text(text)
    name, [first, second] = read_benchmark(tmp_path / "x_val.csv", None, None, 0)
    assert name == "ceval" and first.question.pairs[0][0].startswith('a "b",\nc\nA. 1\n')
    assert [each.place.rpartition(":")[2] for each in (first, second)] == ["2", "5"]
    (tmp_path / "p_val.csv").write_text("goal,sol1,sol2,label\nOpen,pull,eat,0\n")
    assert read_benchmark(tmp_path / "p_val.csv", None, None, 0)[0] == "piqa"


BROKEN_CSV = {
    ":2: found 1 columns, expected 6. Mend the row; is a quote missing?": f'{SIX}"2+2?,1,2,3,4,D\n{SIX * 20}',
    ":2: field larger than field limit (131072). Mend the row;": f'{SIX}"2+2?,1,2,3,4,D\n{SIX * 20_000}',
    ":2: found 5 columns, expected 6. Mend the row": f"{SIX}2+2?,1,2,3,D\n",
    ": the keys x, y are those of no benchmark known here": "x,y\n1,2\n",
    ": not UTF-8 at byte 17, can be read as GB18030. Convert the file: `iconv -f GB18030": f"{SIX}水火?,1,2,3,4,D\n",
}


@pytest.mark.parametrize("message", BROKEN_CSV)
def test_broken_csv_is_named_with_the_line_where_the_row_begins(message, tmp_path):
    file, content = tmp_path / "x_test.csv", BROKEN_CSV[message]
    file.write_text(content, encoding="gb18030" if "GB18030" in message else "utf-8")
    with pytest.raises(DataError) as error:
        read_benchmark(file, None, None, 0)
    assert f"{file}{message}" in str(error.value)


def test_mmlu_is_not_asked_from_its_auxiliary_questions(tmp_path):
    """One of their files is named as those of tests are."""
    for name, rows in (("test/law_test.csv", SIX), ("auxiliary_train/mc_test.csv", "other?,1,2,3,4,D\n")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(rows)
    _, [asked] = read_benchmark(tmp_path, "mmlu", None, 0)
    assert asked.question.subject == "law"

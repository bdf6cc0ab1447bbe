"""Tasks of lm-eval with the rows of local files: its own, and those in YAML from elsewhere, which may run no code."""

import argparse
import json
import os
import sys
from pathlib import Path

import pytest

from data_tools.formats.errors import DataError
from launch.errors import UserError
from tests.evaluation.test_questions import ROWS, TURNS, changed, write

pytestmark = pytest.mark.usefixtures("lm_eval")


def load(named: str, **asked) -> tuple:
    """(the benchmark, its only task)"""
    from launch.evaluation.tasks import load_tasks

    flags = {"split": None, "num_fewshot": None, "text_key": "text", "max_bad_lines": 0} | asked
    [benchmark] = load_tasks([named], argparse.Namespace(**flags))
    return benchmark, next(iter(benchmark.tasks.values()))


def requests(task) -> list[tuple]:
    task.build_all_requests()
    return [one.args for one in task.instances]


def test_subjects_are_tasks_of_a_group_with_the_first_examples_of_their_own(tmp_path):
    for name in ("anatomy", "virology"):
        for split in ("dev", "test"):
            lines = (f"{name} {split} {number}?,1,2,3,4,{'AB'[number]}\n" for number in range(2))
            (tmp_path / f"{name}_{split}.csv").write_text("".join(lines))
    benchmark, task = load(f"mmlu={tmp_path}", num_fewshot=1)
    assert list(benchmark.tasks) == ["mmlu_anatomy", "mmlu_virology"] and benchmark.group.name == "mmlu"
    text = "The following are multiple choice questions (with answers) about anatomy.\n\nanatomy dev 0?\nA. 1\nB. 2\n"
    text += "C. 3\nD. 4\nAnswer: A\n\nanatomy test 0?\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:"
    assert requests(task)[:4] == [(text, f" {letter}") for letter in "ABCD"]
    expected = ", anatomy: --num_fewshot: found 3, for which 3 examples are needed; the split dev has 2. Ask for fewer"
    with pytest.raises(DataError, match=expected):
        load(f"mmlu={tmp_path}", num_fewshot=3)
    (tmp_path / "knots_test.csv").write_text("a?,1,2,3,4,A\n")
    with pytest.raises(DataError, match="knots_test.csv:1: the subject 'knots' is none of lm-eval's mmlu. Name the fi"):
        load(f"mmlu={tmp_path}")


def test_splits_are_those_of_the_task_or_named(tmp_path):
    for split in ("train", "val", "test"):
        write(tmp_path / f"{split}.jsonl", changed("hellaswag", ctx_a=split))
    assert requests(load(str(tmp_path))[1])[0][0] == "R: val S"  # the test's labels are not published
    assert requests(load(str(tmp_path), split="test")[1])[0][0] == "R: test S"
    with pytest.raises(
        DataError, match="found 1, for which 2 examples are needed; the split train has 1"
    ):  # as lm-eval draws
        load(str(tmp_path), num_fewshot=1)
    write(tmp_path / "train.jsonl", *[changed("hellaswag", ctx_a="train")] * 2)
    assert requests(load(str(tmp_path), num_fewshot=1)[1])[0][0] == "R: train S a\n\nR: val S"
    with pytest.raises(DataError, match="no files of the split dev; there are those of test, train, val. Name one of"):
        load(f"hellaswag={tmp_path}", split="dev")
    file = write(tmp_path / "alone" / "test.jsonl", ROWS["gsm8k"][0])
    with pytest.raises(DataError, match="no files to take 5 examples from: .* Or ask without: --num_fewshot 0"):
        load(f"gsm8k={file}")  # its definition says five
    assert requests(load(f"gsm8k={file}", num_fewshot=0)[1])[0][0] == "Question: 2 and 2?\nAnswer:"


WRITTEN = {
    "squad": ("Title: Ice\n\nBackground: Chinese: 元朝. Ice floats.\n\nQuestion: What floats?\n\nAnswer:", ["\n"]),
    "cmrc": ("语境: 冰浮在水上。\n\n问题: What floats?\n\n回答:", ["\n"]),
    "qa": ("Question: What floats?\nAnswer:", ["\n\n"]),
    "pairs": ("Ice floats?", []),
}


@pytest.mark.parametrize("form", WRITTEN)
def test_answers_in_words(form, tmp_path):
    _, task = load(str(write(tmp_path / "x_test.jsonl", ROWS[form][0])))
    [(text, settings)] = requests(task)
    assert (text, settings["until"]) == WRITTEN[form]
    right = {"squad": "the  ice", "cmrc": "Ice。", "qa": "a Frozen water!", "pairs": "yes"}[form]
    measures = task.process_results(task.eval_docs[0], [right])
    assert measures["exact_match"] == measures["f1"] == 1


SCENE = {"role": "system", "content": "Be brief."}
WET = [{"role": "user", "content": "Ice?"}, {"role": "assistant", "content": "Wet."}]


@pytest.mark.parametrize("values", [{"messages": [SCENE, *WET, *TURNS]},
                                    {"messages": [*WET, *TURNS], "system": "Be brief."}])  # fmt: skip
def test_a_chat_is_asked_for_its_last_answer_after_all_that_was_said_before(values, tmp_path):
    write(tmp_path / "train.jsonl", changed("chat"))
    write(tmp_path / "test.jsonl", changed("chat", **values), changed("chat"))
    _, task = load(f"chat={tmp_path}", num_fewshot=0)
    assert requests(task)[0][0] == "Be brief.\n\nIce?\n\nWet.\n\nIce floats?"
    chat = {
        "apply_chat_template": True,
        "fewshot_as_multiturn": True,
        "chat_template": lambda said, **_: json.dumps(said),
    }
    task.build_all_requests(**chat)
    said = [json.loads(one.args[0]) for one in task.instances]
    assert said == [[SCENE, *WET, TURNS[0]], TURNS[:1]]
    assert task.process_results(task.eval_docs[0], ["yes"])["exact_match"] == 1
    _, task = load(f"chat={tmp_path}", num_fewshot=1)
    task.build_all_requests(**chat)
    assert json.loads(task.instances[0].args[0]) == [SCENE, *TURNS, *WET, TURNS[0]]


def test_the_language_of_answers_is_that_of_most(tmp_path):
    rows = [{"question": f"{number}?", "answers": [answer]} for number, answer in enumerate(("元朝", "北京", "1998"))]
    _, task = load(f"qa={write(tmp_path / 'x_test.jsonl', *rows)}")
    assert task.process_results(task.eval_docs[0], ["元朝。"])["exact_match"] == 1
    assert task.process_results(task.eval_docs[0], ["the 元朝"])["exact_match"] == 0
    _, task = load(str(write(tmp_path / "y_test.jsonl", changed("squad", answers={"text": []}))))
    assert task.process_results(task.eval_docs[0], [""]) == {"exact_match": 1, "f1": 1}
    assert task.process_results(task.eval_docs[0], ["Ice"]) == {"exact_match": 0, "f1": 0.0}


def test_perplexities_that_no_float_holds(tmp_path):
    _, task = load(f"text={write(tmp_path / 'a.jsonl', {'text': 'two words'}, {'text': ' '}, {'text': '水'})}")
    assert requests(task) == [("two words",), ("水",)]
    word, byte, bits = (task.aggregation()[name] for name in ("word_perplexity", "byte_perplexity", "bits_per_byte"))
    found = [task.process_results(doc, [-4.0]) for doc in task.eval_docs]
    assert [one["bits_per_byte"] for one in found] == [(-4.0, 9), (-4.0, 3)]
    assert byte([(-1.0, 1)]) == pytest.approx(2.718281828) and word([(-3000.0, 1)]) == float("inf")


def test_standard_errors_by_resamples_start_no_process(monkeypatch, tmp_path):
    """A fork of a process in which Paddle's threads run may wait for ever."""
    load(f"text={write(tmp_path / 'a.jsonl', {'text': 'x'})}")
    from lm_eval.api.metrics import median, stderr_for_metric

    monkeypatch.setattr("multiprocessing.Pool", lambda count: pytest.fail("a pool"))
    assert 0 < stderr_for_metric(median, 100)([1.0, 2.0, 3.0, 4.0]) < 2


REFUSED = [
    ("process_docs: !function utils.f", "!function utils.f: code of a data folder is never run. Write it as a templ"),
    ("class: x.C", "class: code, data or groups of elsewhere are not taken. Leave the key out."),
    ("include: ../x.yaml", "include: found ../x.yaml, expected a file of lm-eval's folder of tasks."),
    ("x: !!python/object/apply:os.mkdir [ran]", "could not determine a constructor for the tag"),
    (
        "metric_list: [{metric: ./ran.py}]",
        "own has the metric ./ran.py, which is no code of lm-eval; its own are acc",
    ),
    ("metric_list: [{metric: acc, hf_evaluate: true}]", "own has the metric acc, which is no code of lm-eval"),
    (
        "metric_list: [{metric: acc, aggregation: os.system}]",
        "own has the aggregation os.system, allowed: bits_per_byte, bleu",
    ),
    ("unsafe_code: true", "unsafe_code: code, data or groups"),
    ("description: \"{{ ''.__class__.__mro__ }}\"", "SecurityError: access to attribute '__class__' of 'str' object"),
    ("repeats: 1000000000", "repeats: found 1000000000, allowed: 1 to 1,024."),
    ("metric_list: 5", "metric_list: found 'int', expected list."),
    ("filter_list: [5]", "metric_list, filter_list: expected a list of objects."),
    ("generation_kwargs: {until: 5}", "generation_kwargs: until: expected a text, or a list of texts."),
    ('task_alias: "\\e[31m"', r"task_alias: found '\x1b[31m', expected a name of at most 200 characters."),
    ("x: " + "[" * 2000, "own.yaml: lists or objects are nested too deeply."),
    ("x: &x {y: 1}\nz: {<<: [*x, *x]}", "own.yaml: <<: keys of another mapping are not merged. Write them out."),
    ("x: 2026-02-30", "own.yaml: day is out of range for month"),
    ("y: " + "a" * (1 << 20), " bytes, allowed for a task: 1,048,576."),
    ("description: '{{ nothing }}'", "x_test.jsonl:1: no row of lm-eval's task own: UndefinedError: 'nothing' is unde"),
]
OWN = "task: own\noutput_type: multiple_choice\ntest_split: test\n"
OWN += "doc_to_text: '{{q}}'\ndoc_to_choice: c\ndoc_to_target: a\n"


@pytest.fixture
def own(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "utils.py").write_text("open('ran', 'w')\ndef f(rows):\n    return rows\n")
    write(tmp_path / "x_test.jsonl", {"q": "Which?", "c": ["this", "that"], "a": 1})
    (tmp_path / "own.yaml").write_text(OWN)
    return tmp_path


def test_a_pipe_and_what_holds_itself_many_times_are_no_tasks(own):
    (own / "own.yaml").unlink()
    os.mkfifo(own / "own.yaml")
    with pytest.raises(DataError, match="own.yaml: found a pipe or a device, expected a file"):
        load(str(own / "own.yaml"))
    (own / "own.yaml").unlink()
    names = "abcdefghijkl"
    lines = [f"{two}: &{two} [{', '.join(['*' + one] * 9)}]" for one, two in zip(names, names[1:], strict=False)]
    (own / "own.yaml").write_text("\n".join(["a: &a [x]", *lines]))  # 9 ** 11 elements, where they are printed
    with pytest.raises(DataError, match="own.yaml: expected an object with a key task, the name of the task"):
        load(str(own))


def test_a_task_in_yaml_from_elsewhere(own):
    for named in (own, own / "own.yaml"):
        assert requests(load(str(named))[1]) == [("Which?", " this"), ("Which?", " that")]
    (own / "own.yaml").write_text(OWN.replace("doc_to_text: '{{q}}'", "include: piqa/piqa.yaml\ndescription: 'Q. '"))
    (own / "x_test.jsonl").write_text(json.dumps({"goal": "Open", "c": ["this", "that"], "a": 1}))
    assert requests(load(str(own))[1])[0] == ("Q. Question: Open\nAnswer:", " this")


@pytest.mark.parametrize(("more", "message"), REFUSED, ids=[more.partition(":")[0] for more, _ in REFUSED])
def test_no_code_of_a_data_folder_is_run(own, more, message):
    (own / "own.yaml").write_text(OWN + more)
    with pytest.raises((DataError, UserError)) as error:
        load(str(own))
    assert message in str(error.value) and not (own / "ran").exists() and "utils" not in sys.modules


def test_a_template_that_computes_without_end_is_ended(own, monkeypatch):
    monkeypatch.setattr("launch.evaluation.harness.TEMPLATE_SECONDS", 0.05)
    loops = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"
    (own / "own.yaml").write_text(OWN.replace("{{q}}", loops))
    with pytest.raises(DataError, match="x_test.jsonl:1: .* TimeoutError: a template computes for more than 0.05 s"):
        load(str(own))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"a": 2},
            "found 2 as the answer, the choices are 2. Mend the row; without an answer, as in files for a leader",
        ),
        ({"a": -1}, "found -1 as the answer"),
        ({"a": None}, "found None as the answer"),
        ({"c": ["this", " "]}, "choice 1, counted from 0, has no text."),
        ({"c": ["this", None]}, "choice 1, counted from 0, has no text."),
    ],
)
def test_a_damaged_answer_never_counts_as_wrong(own, row, message):
    good = {"q": "Which?", "c": ["this", "that"], "a": 1}
    with pytest.raises(DataError) as error:
        load(f"{own / 'own.yaml'}") if not write(own / "x_test.jsonl", good, good | row | {"q": "?"}) else load(
            str(own)
        )
    assert f"{own}/x_test.jsonl:2: " in str(error.value) and message in str(error.value)


@pytest.mark.parametrize("named", ["mmlu=", "=x", ""])
def test_names_that_are_none(named):
    with pytest.raises(UserError, match=f"found '{named}', allowed: NAME=PATH, or PATH alone"):
        load(named)


@pytest.mark.long
def test_any_task_or_group_of_lm_eval(tmp_path):
    """Its index of all definitions takes ten seconds."""
    row = {"question": "Knot?", "options": [*"abcdefghij"], "answer": "B", "category": "law", "cot_content": "", "n": 1}
    file = write(tmp_path / "pro_test.jsonl", row, row | {"category": "knots", "n": 2})
    benchmark, task = load(f"mmlu_pro={file}", num_fewshot=0)
    assert list(benchmark.tasks) == ["mmlu_pro_law"] and "J. j\n" in requests(task)[0][0]
    assert benchmark.notes == [f"mmlu_pro: 1 row left out by its definition, the first {file}:2"]
    kmmlu = write(tmp_path / "k_test.jsonl", {"question": "Knot?", **ROWS["cmmlu"][0], "answer": 2})
    _, task = load(f"kmmlu_direct_accounting={kmmlu}", num_fewshot=0)
    assert task.doc_to_target(task.eval_docs[0]) == "B"
    for name, message in (
        ("mmlu_prp", "'mmlu_prp' is neither one of .* nor a task or group of lm-eval"),
        ("squadv2", "squadv2 is not read: lm-eval makes it by code"),
        ("humaneval", "humaneval (runs the code that a model writes|of lm-eval cannot be read without a network)"),
    ):
        with pytest.raises(UserError, match=message):
            load(f"{name}={file}", num_fewshot=0)

"""Measures, and results that are collected over several starts."""

import json
import math
import statistics

import pytest

from data_tools.formats.benchmarks.files import Asked
from data_tools.formats.benchmarks.questions import Question
from data_tools.formats.errors import DataError
from launch.errors import UserError
from launch.evaluation.benchmark_results import Collected, results, table, write_results
from launch.evaluation.tasks import Item, Task, measures, open_task, subjects


def record(number: int, right: int, subject: str = "") -> dict:
    return {"digest": str(number), "subject": subject, "acc": right, "acc_norm": 1 - right}


def test_accuracy_and_its_standard_error():
    found = measures([record(number, number % 4 == 0) for number in range(8)])
    assert found["acc"] == 0.25 and found["acc_norm"] == 0.75
    assert found["acc_stderr"] == pytest.approx(math.sqrt(0.25 * 0.75 / 7), rel=1e-12)
    by_subject = subjects([record(0, 1, "law"), record(1, 0, "law"), record(2, 1, "logic")])
    assert {name: (of["questions"], of["acc"]) for name, of in by_subject.items()} == {
        "law": (2, 0.5),
        "logic": (1, 1.0),
    }


def test_the_standard_error_of_several_subjects_is_pooled():
    """As lm-evaluation-harness's groups of tasks have it, by its formula."""
    values = {"law": [1, 0, 1, 1, 0], "logic": [0, 0, 1], "art": [1, 1]}
    records = [record(number, value, subject) for subject in values for number, value in enumerate(values[subject])]
    sizes = {subject: len(of) for subject, of in values.items()}
    errors = {subject: statistics.stdev(of) / math.sqrt(len(of)) for subject, of in values.items()}
    squares = sum((size - 1) * errors[subject] ** 2 * size for subject, size in sizes.items())
    expected = math.sqrt(squares / (sum(sizes.values()) - len(sizes)) / sum(sizes.values()))
    assert measures(records)["acc_stderr"] == pytest.approx(expected, rel=1e-12)
    assert measures([record(0, 1, "law"), record(1, 0, "logic")])["acc_stderr"] == 0.0  # one of each: no spread


@pytest.mark.parametrize(
    ("name", "expected"),
    [("arc", {"acc": 0, "acc_norm": 1}), ("boolq", {"acc": 0}), ("mmlu", {"acc": 0}), ("winogrande", {"acc": 0})],
)
def test_choices_are_taken_whole_and_by_character(name, expected):
    """Not by character where lm-evaluation-harness does not do so."""
    question = Question((("q", "水"), ("q", "a longer one")), 1)
    task = Task(name, [Item("x:1", "0", Asked(question, "x:1", "", ()))])
    found = task.record(0, [-1.2, -6.0])  # by bytes, -1.2 / 3 would be the largest
    common = {"place": "x:1", "digest": "0", "subject": "", "log_likelihoods": [-1.2, -6.0]}
    assert found == common | expected


def test_perplexity_of_texts():
    task = Task("text", [Item("x:1", "0", text="two words"), Item("x:2", "1", text="水")])
    records = [task.record(0, [-3.0, -1.0]), task.record(1, [-2.0])]
    assert [(each["words"], each["bytes"]) for each in records] == [(2, 9), (1, 3)]
    found = measures(records)
    assert found["word_perplexity"] == pytest.approx(math.exp(6 / 3))
    assert found["byte_perplexity"] == pytest.approx(math.exp(6 / 12))
    assert found["bits_per_byte"] == pytest.approx(6 / 12 / math.log(2))


def test_results_are_json_where_a_perplexity_is_larger_than_any_number(tmp_path):
    """A Chinese text is one word."""
    task = Task("text", [Item("x:1", "0", text="水" * 500)])
    report = results({}, [task], {(0, 0): [-3000.0]})
    write_results(tmp_path / "out.json", report)
    text = (tmp_path / "out.json").read_text()
    assert "word_perplexity" not in text and "Infinity" not in text
    assert json.loads(text)["tasks"]["text"]["byte_perplexity"] == pytest.approx(math.exp(2))
    [line] = table(report)
    assert line == "text (1)  word perplexity inf  byte perplexity 7.3891  bits per byte 2.8854"


def test_what_was_collected_is_kept_and_a_cut_line_is_not(tmp_path):
    first = Collected(tmp_path / "out.json", "same")
    first.open()
    first.add(0, 3, [-1.5, -0.25])
    first.add(1, 0, [-2.0])
    first.close()
    with open(first.partial, "ab") as file:
        file.write(b"[1, 1, [-3.")
    again = Collected(tmp_path / "out.json", "same")
    again.open()
    with pytest.raises(DataError, match=r"out.json.unfinished: another process is writing it. Wait for it, or name"):
        Collected(tmp_path / "out.json", "same").open()
    assert again.values == {(0, 3): [-1.5, -0.25], (1, 0): [-2.0]}
    again.add(1, 1, [-3.0])
    again.close()
    assert [json.loads(line) for line in again.partial.read_text().splitlines()][1:] == [
        [0, 3, [-1.5, -0.25]],
        [1, 0, [-2.0]],
        [1, 1, [-3.0]],
    ]
    with pytest.raises(UserError, match="of another model, other tasks or other settings"):
        Collected(tmp_path / "out.json", "other").open()
    with open(first.partial, "ab") as file:
        file.write(b"[1, 1\n")
    with pytest.raises(UserError, match="damaged. Remove it; the evaluation begins anew"):
        Collected(tmp_path / "out.json", "same").open()


def test_results_of_a_process_that_finished_meanwhile_stay(tmp_path):
    (tmp_path / "out.json").write_text("{}")
    with pytest.raises(UserError, match="out.json: there are results already"):
        Collected(tmp_path / "out.json", "same").open()
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_tasks_that_are_unknown_are_refused(tmp_path):
    for named in ("humaneval=x", "mmlu=", "=x", ""):
        with pytest.raises(UserError, match=f"found '{named}', allowed: NAME=PATH"):
            open_task(named, None, 0, None)
    (tmp_path / "a.jsonl").write_text('{"text": " "}\n')
    with pytest.raises(UserError, match="no texts there"):
        open_task(f"text={tmp_path / 'a.jsonl'}", None, 0, None)


def test_texts_at_another_key_and_lines_without_texts(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"page": "one"}\n{"page": null}\n{"page": "two"}\n')
    named = f"text={tmp_path / 'a.jsonl'}"
    with pytest.raises(DataError, match="a.jsonl:1: no text at key 'text'; the keys are page. Name one by --text_key"):
        open_task(named, None, 0, None)
    with pytest.raises(DataError, match="a.jsonl:2: 'page' is null, .* Or leave such lines out: --max_bad_lines N"):
        open_task(named, None, 0, None, text_key="page")
    task = open_task(named, None, 0, None, text_key="page", max_bad_lines=1)
    assert [item.text for item in task.items] == ["one", "two"]

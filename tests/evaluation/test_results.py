"""Measures, their comparison, and results that are collected over several starts."""

import json
import math
import statistics

import pytest

from data_tools.formats.benchmarks.files import Asked
from data_tools.formats.benchmarks.questions import Question
from data_tools.formats.errors import DataError
from launch.errors import UserError
from launch.evaluation.benchmark_results import (
    Collected,
    compare,
    read_results,
    results,
    table,
    write_results,
)
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


def reports(before: list[int], after: list[int]) -> list[dict]:
    return [
        {"tasks": {"arc": {"records": [record(n, right) | {"acc_norm": 0} for n, right in enumerate(of)]}}}
        for of in (before, after)
    ]


def test_a_difference_is_told_from_noise():
    better = [1] * 60 + [0] * 40
    [line, flat] = compare(*reports([0] * 20 + better[20:], better))
    assert line.startswith("arc (100)  acc 0.4000 -> 0.6000  +0.2000 [+0.1") and line.endswith("  better")
    low, high = (float(word.strip("[],")) for word in line.split()[7:9])
    # The number of changed answers is binomial(100, 0.2): its 2.5 % and 97.5 % quantiles are 12 and 28.
    assert (low, high) == pytest.approx((0.12, 0.28), abs=0.011)
    assert flat.startswith("arc (100)  acc_norm 0.0000 -> 0.0000  +0.0000 [+0.0000, +0.0000]  noise")
    noisy = [1, 0] * 50
    assert compare(*reports(noisy, noisy[::-1]))[0].endswith("noise")
    assert compare(*reports(better, [0] * 100))[0].endswith("worse")


def test_a_comparison_shows_in_which_settings_they_differ():
    before, after = reports([1] * 30, [0] * 30)
    before |= {"model": "a", "adapter": None, "num_fewshot": 5, "limit": None}
    after |= {"model": "a", "adapter": "lora", "num_fewshot": 5, "limit": 30}
    adapter, limit, *lines = compare(before, after)
    assert (adapter, limit, len(lines)) == ("adapter: none -> lora", "limit: none -> 30", 2)


def test_texts_are_compared_by_bits_per_byte():
    def report(nats: float) -> dict:
        items = [{"digest": str(n), "log_likelihood": -nats * n, "words": n, "bytes": 4 * n} for n in range(1, 40)]
        return {"tasks": {"text": {"records": items}}}

    [line] = compare(report(4.0), report(3.0))
    assert line.startswith(f"text (39)  bits_per_byte {1 / math.log(2):.4f} -> {0.75 / math.log(2):.4f}")
    assert line.endswith("better")


def test_results_of_other_questions_are_not_compared(tmp_path):
    first, second = reports([1], [1])
    second["tasks"]["arc"]["records"][0]["digest"] = "other"
    with pytest.raises(DataError, match="no task with the same questions"):
        compare(first, second)
    for content in ("{}", '{"tasks": {"arc": {}}}'):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(DataError, match="no results of make evaluate: no 'tasks' with 'records'"):
            read_results(tmp_path / "x.json")


@pytest.mark.parametrize(
    "record",
    [{}, "a", {"digest": ["1"], "acc": 1}, {"digest": "1", "acc": "x"}, {"digest": "1", "bleu": 3}],
)
def test_damaged_records_are_refused(record):
    report = {"tasks": {"arc": {"records": [record]}}}
    with pytest.raises(DataError, match="a record is none that make evaluate has written: .*Evaluate the damaged one"):
        compare(report, report)


def test_few_items_are_not_judged():
    [line, _] = compare(*reports([0] * 29, [1] * 29))
    assert line.endswith("[+1.0000, +1.0000]  fewer than 30 items: not judged")


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

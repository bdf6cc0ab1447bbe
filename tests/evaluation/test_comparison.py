"""Two results compared: differences are told from noise."""

import math

import pytest

from data_tools.formats.errors import DataError
from launch.errors import UserError
from launch.evaluation.comparison import compare, read_results
from launch.evaluation.task_results import Collected


def report(task: str, samples: list[dict], **groups) -> dict:
    """As make evaluate writes it. samples: the measures of each."""
    known = [{"digest": str(n), "filter": "none", "metrics": [*one]} | one for n, one in enumerate(samples)]
    return {"samples": {task: known}, "higher_is_better": {task: {"bits_per_byte": False}}, "group_subtasks": groups}


def reports(before: list[int], after: list[int]) -> list[dict]:
    return [report("arc", [{"acc": right, "acc_norm": 0} for right in of]) for of in (before, after)]


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
    """Not by what else is made of the same sums; less is better."""

    def texts(nats: float) -> dict:
        return report("text", [{"bits_per_byte": [-nats * n, 4 * n], "words": [-nats * n, n]} for n in range(1, 40)])

    [line] = compare(texts(4.0), texts(3.0))
    assert line.startswith(f"text (39)  bits_per_byte {1 / math.log(2):.4f} -> {0.75 / math.log(2):.4f}")
    assert line.endswith("better")


def test_subjects_are_compared_together_and_each_filter_of_answers_alone():
    before, after = ({"samples": {}, "higher_is_better": {}, "group_subtasks": {"mmlu": ["law", "art"]}} for _ in "12")
    for task in ("law", "art"):
        for whole, right in ((before, 0), (after, 1)):
            samples = report(task, [{"acc": right}] * 20)
            whole["samples"] |= {task: [one | {"digest": f"{task}{one['digest']}"} for one in samples["samples"][task]]}
            whole["higher_is_better"] |= samples["higher_is_better"]
    for sample in before["samples"]["art"] + after["samples"]["art"]:
        sample["filter"] = "strict"
    lines = compare(before, after)
    assert [line[:36] for line in lines] == [
        "mmlu (20)  acc 0.0000 -> 1.0000  +1.",
        "mmlu (20)  acc,strict 0.0000 -> 1.00",
    ]


def test_results_of_other_questions_are_not_compared(tmp_path):
    first, second = reports([1], [1])
    second["samples"]["arc"][0]["digest"] = "other"
    with pytest.raises(DataError, match="no task with the same questions"):
        compare(first, second)
    for content in ("{}", '{"samples": {"arc": []}}', '{"tasks": {"arc": {"records": [1]}}}'):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(DataError, match="no results of make evaluate, or older ones: no 'samples'. Evaluate anew"):
            read_results(tmp_path / "x.json")


@pytest.mark.parametrize("change", [{"digest": [1]}, {"metrics": 3}, {"acc": "x"}, {"acc": math.nan}, {"filter": None}])
def test_damaged_samples_are_refused(change):
    found = report("arc", [{"acc": 1}])
    found["samples"]["arc"][0] |= change
    if change == {"filter": None}:
        del found["samples"]["arc"][0]["filter"]
    with pytest.raises(DataError, match="a record is none that make evaluate has written: .*Evaluate the damaged one"):
        compare(found, found)


@pytest.mark.parametrize("change", [{"group_subtasks": None}, {"higher_is_better": {"arc": {"acc": "yes"}}}])
def test_damaged_settings_are_refused(change):
    found = report("arc", [{"acc": 1}]) | change
    with pytest.raises(DataError, match="a record is none that make evaluate has written: "):
        compare(found, found)


def test_few_items_are_not_judged():
    [line, _] = compare(*reports([0] * 29, [1] * 29))
    assert line.endswith("[+1.0000, +1.0000]  fewer than 30 items: not judged")


@pytest.mark.parametrize(
    "line", ["5", '["x"]', '["a", "b", [[Infinity, 1]]]', '["a", "b", 5]', "[" * 100_000, '["a", {}, [["x", 1]]]', "\0"]
)
def test_a_damaged_beginning_of_an_evaluation_is_refused(tmp_path, line):
    (tmp_path / ".x.json.unfinished").write_text(f'["id", {{"--batch_size": 8}}]\n{line}\n')
    with pytest.raises(UserError, match="damaged. Remove it; the evaluation begins anew"):
        Collected(tmp_path / "x.json", "id", {"--batch_size": 8}).open()

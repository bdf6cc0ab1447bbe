"""Two results compared: differences are told from noise."""

import math

import pytest

from data_tools.formats.errors import DataError
from launch.evaluation.comparison import compare, read_results


def record(number: int, right: int) -> dict:
    return {"digest": str(number), "subject": "", "acc": right, "acc_norm": 1 - right}


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
    [
        {},
        "a",
        {"digest": ["1"], "acc": 1},
        {"digest": "1", "acc": "x"},
        {"digest": "1", "acc": math.nan},
        {"digest": "1", "bleu": 3},
    ],
)
def test_damaged_records_are_refused(record):
    report = {"tasks": {"arc": {"records": [record]}}}
    with pytest.raises(DataError, match="a record is none that make evaluate has written: .*Evaluate the damaged one"):
        compare(report, report)


def test_few_items_are_not_judged():
    [line, _] = compare(*reports([0] * 29, [1] * 29))
    assert line.endswith("[+1.0000, +1.0000]  fewer than 30 items: not judged")

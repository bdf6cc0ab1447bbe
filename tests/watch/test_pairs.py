"""The watch of preference tuning: a margin that grows while both responses become less likely is told once."""

import pytest

from launch.watch import PAIR_RECORDS, PairWatch


def records(margin: float, chosen: float, rejected: float, count: int = 2 * PAIR_RECORDS) -> list[dict]:
    """Of steps from 0 on; the arguments are changes a step."""
    return [
        {"rewards_margin": margin * step, "chosen": -1 + chosen * step, "rejected": -1 + rejected * step}
        for step in range(count)
    ]


def warnings(watch: PairWatch, found: list[dict]) -> list[int]:
    return [step for step, record in enumerate(found) if watch.warning(record)]


def likelihoods(record: dict) -> tuple[float, float]:
    return record["chosen"], record["rejected"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ((0.1, -0.2, -0.3), [PAIR_RECORDS - 1]),  # by 0.9 and 1.35 nats on average
        ((0.1, -0.1, -0.3), [10]),  # the chosen ones by more than 0.5 from there on
        ((0.1, -0.01, -0.3), []),
        ((0.1, 0.1, -0.3), []),
        ((-0.1, -0.2, -0.3), []),
        ((0.0, -0.2, -0.2), []),
    ],
)
def test_what_is_told(changes, told):
    assert warnings(PairWatch(likelihoods), records(*changes)) == told


def test_falls_that_have_ended_are_not_told():
    fallen = [*records(0.1, -0.3, -0.3, 5), *({"rewards_margin": n, "chosen": -2, "rejected": -2} for n in range(5))]
    for record in fallen[5:]:
        record |= {"chosen": -1.5, "rejected": -1.5}
    assert warnings(PairWatch(likelihoods), fallen) == []


def test_it_is_told_once_and_the_past_counts():
    found = records(0.1, -0.2, -0.3)
    assert warnings(PairWatch(likelihoods, found[:5]), found[5:]) == [PAIR_RECORDS - 1 - 5]
    assert warnings(PairWatch(likelihoods, found[:10]), found[10:]) == []


def test_the_warning_has_the_numbers_and_what_helps():
    told = next(filter(None, map(PairWatch(likelihoods).warning, records(0.1, -0.2, -0.3))))
    assert "chosen ones by 0.90 nats, of the rejected ones by 1.35, since the first step" in told
    assert "lower --learning_rate, a higher --beta, or --sft_loss_ratio" in told

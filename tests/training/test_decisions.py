"""What the ranks decide together: one rank's card, or its start-up check, counts for all."""

import pytest

DECIDE = "tests.training.decision_ranks:decide"
PARSE = "tests.training.decision_ranks:parse"
A100, V100 = [8, 0], [7, 0]
GOOD = ["", ""]


def test_two_good_cards(ranks):
    for decided in ranks(2, DECIDE, [A100, A100], GOOD, {}, {"tensor_parallel_degree": 2}):
        assert decided["flash"] is True
        assert decided["lines"][:2] == ["precision: bfloat16", "flash attention: on"]
        assert decided["checked"] == [[2, 2, 16, "bfloat16", "dense"]]  # 4 heads of 16, half of them each


def test_one_old_card_counts_for_all(ranks):
    training = {"bf16": False, "fp16": True}
    for decided in ranks(2, DECIDE, [A100, V100], GOOD, {}, training):
        assert (decided["flash"], decided["checked"]) == (False, [])
        assert decided["lines"][1].startswith("flash attention: off (on rank 1: compute capability 7.0")
    for decided in ranks(2, DECIDE, [A100, V100], GOOD, {"use_flash_attention": "required"}, training):
        assert "not possible here: on rank 1: compute capability 7.0" in decided["error"]


def test_one_failed_check_counts_for_all(ranks):
    verdicts = ["its result is off by 1", ""]
    for decided in ranks(2, DECIDE, [A100, A100], verdicts, {}, {}):
        assert decided["lines"][1] == "flash attention: off (on rank 0: its result is off by 1), exact attention"
    for decided in ranks(2, DECIDE, [A100, A100], verdicts, {"use_flash_attention": "required"}, {}):
        assert "required: not possible here: on rank 0: its result is off by 1" in decided["error"]


def test_ranks_that_came_to_different_precisions_do_not_train(ranks):
    decided = ranks(2, "tests.training.decision_ranks:decide_by_card", [A100, V100])
    assert ["some ranks have cards with bfloat16" in one["error"] for one in decided] == [True, True]


def test_the_check_is_made_where_flash_attention_may_be_used(ranks):
    """With the real check: on a CPU Paddle has no kernel for it in half precision, and says so."""
    [decided] = ranks(1, DECIDE, [A100], ["run"], {}, {})
    assert decided["lines"][1].startswith("flash attention: off (it fails here: ")
    [off] = ranks(1, DECIDE, [A100], ["run"], {"use_flash_attention": "off"}, {})
    assert off["checked"] == []


@pytest.mark.parametrize(
    ("flags", "capability", "expected"),
    [
        ([], None, (False, False)),
        (["--bf16", "auto"], A100, (True, False)),
        (["--bf16", "auto"], V100, (False, True)),
        (["--bf16", "auto", "--fp16", "1"], A100, (True, False)),
        (["--bf16", "auto"], None, (False, False)),
        (["--bf16"], A100, (True, False)),
        (["--bf16", "1"], A100, (True, False)),
        (["--bf16", "0", "--fp16", "1"], V100, (False, True)),
    ],
)
def test_what_the_trainer_is_given(ranks, flags, capability, expected):
    [parsed] = ranks(1, PARSE, flags, capability)
    assert (parsed["bf16"], parsed["fp16"]) == expected


def test_bfloat16_on_a_v100_does_not_start(ranks):
    [parsed] = ranks(1, PARSE, ["--bf16", "1"], V100)
    assert "--bf16: found on, but compute capability 7.0 has no bfloat16" in parsed["error"]

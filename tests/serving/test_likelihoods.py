"""Likelihoods are those of the model's own logits, in one pass over the prompt and in each step of an answer."""

import math

import pytest

from launch.families.registry import FAMILIES

LOGITS, EOS = [2.0, 0.0, 1.0, 5.0], 2


@pytest.fixture(scope="module")
def facts(ranks, tmp_path_factory) -> dict:
    """What each function of likelihood_ranks.py finds, in one process."""
    options = [
        {"temperature": 0, "logprobs": 2},
        {"temperature": 1e-9, "seed": 1, "logprobs": 0},
        {"temperature": 0},
        {"temperature": 0, "logprobs": 3, "prompt_logprobs": 5},
        {"temperature": 0, "logprobs": 0, "logit_bias": [[1, 3]]},
    ]
    steps = [LOGITS, LOGITS, LOGITS, [0.0, -math.inf, 1.0, 0.0], LOGITS]
    directory = str(tmp_path_factory.mktemp("names"))
    return ranks(1, "tests.serving.likelihood_ranks:facts", directory, steps, options, 3, 0)[0]


def test_a_steps_likelihoods_are_of_all_logits_before_temperature(facts):
    """The last id is none of the tokenizer's: it takes its share of the probability, and is never told."""
    found, logits = facts["of_a_step"], LOGITS
    total = math.log(sum(math.exp(one) for one in logits))
    top = [[0, pytest.approx(2 - total, abs=1e-6)], [2, pytest.approx(1 - total, abs=1e-6)]]
    token, value, rank, told = found[0][0]
    assert (token, value, rank, told[:2]) == (0, top[0][1], 2, top) and found[0][1] == "stop"
    assert found[1][0][1] == top[0][1]
    assert found[2] == ["stop"]  # those that do not ask are told nothing
    token, value, rank, _ = found[4][0]  # a bias chooses, and changes no likelihood
    assert (token, value, rank) == (1, pytest.approx(-total, abs=1e-6), 4)
    token, _, rank, told = found[3][0]
    assert (token, rank) == (2, 1) and told[2] == [1, -9999.0] and found[3][1] == 2


def test_prompts_that_are_read_together_take_no_more_memory_than_the_longest_one(facts):
    """16 bytes for each of 4 heads and 9 x 9 tokens; 5 x 4 x 4 are fewer pairs."""
    assert facts["passes"] == [9, 5, 1, 1]


def test_tokens_by_themselves_have_names_of_their_own(facts):
    parts = [[f"bytes:\\x{byte:02x}", [byte]] for byte in "字".encode()]
    assert facts["names"] == [[[" t", [32, 116]], *parts, [end, None]] for end in ("</s>", "<|endoftext|>")]


def test_rows_that_are_done_are_given_eos(facts):
    found = facts["chosen"]
    assert found["steps"] == [[EOS, 6, EOS, 7], [EOS, EOS, EOS, 4], [EOS] * 4]
    assert found["told"] == [[], [6, "length"], ["stop"], [7, 4, "failed"]]


def test_what_cannot_fit_however_it_is_encoded_is_refused_before_it_is(facts):
    room = "found 51 characters, the model has 10 positions for tokens of 5 characters at most"
    last = "messages: the last message is no question: user, assistant"
    assert facts["refused"] == [
        [400, f"prompt: {room}", "prompt"],
        [400, f"messages: {room}", "messages"],
        [400, last, "messages"],
    ]


@pytest.mark.long
def test_prompts_of_all_families(ranks, tmp_path):
    """In parts of 5 tokens and in batches as from all logits of each alone."""
    names = [name for name, family in FAMILIES.items() if family.attention == "causal"]
    ranks(1, "tests.families.family_ranks:save_all", names, str(tmp_path))
    [found] = ranks(1, "tests.serving.likelihood_ranks:of_prompts", str(tmp_path), names, 5, 20)
    assert len(found) == len(names) > 8
    for name, one in found.items():
        assert one["agree"] and one["difference"] < 2e-5 and one["tokens"] == 5, (name, one)
        assert one["batches"] == [[2, 9], [1, 12]]

"""The continuous batch: rows come and go, and each is answered as alone, within a stated memory."""

import pytest

from launch.commands import serve
from launch.families.registry import FAMILIES
from launch.serving.request import Finish

MODULE = "tests.serving.continuous_ranks"
ADAPTERS = {  # of families whose attention, prefix or layers differ
    "llama": ["lora", "prefix"],
    "mistral": ["lora", "prefix"],
    "bloom": ["lora", "prefix"],
    "opt": ["lora", "dora"],
    "chatglm_v2": ["lora", "prefix"],
}


@pytest.fixture(scope="module")
def facts(ranks, served) -> dict:
    """What each function of continuous_ranks.py finds, in one process."""
    return ranks(1, f"{MODULE}:facts", str(served))[0]


def test_rows_of_a_base_and_its_adapters_are_answered_together_as_alone(facts):
    found = facts["in_company"]
    assert found["together"] == found["alone"]
    assert found["mixed"] == 3 and max(found["rows"]) == 6
    assert found["chunks"] <= 8 and found["beside"]  # a chunk of a prompt beside another's newest token
    assert sum(found["rows"]) / len(found["rows"]) > 4  # places are refilled at once
    assert found["allocated"] <= found["reserved"] <= 1200 and found["left"] == 0


@pytest.fixture(scope="module")
def families(ranks, tmp_path_factory):
    """Models and adapters of ADAPTERS; what families_with_adapters() finds of them on one process."""
    directory = str(tmp_path_factory.mktemp("families"))
    ranks(1, "tests.families.family_ranks:save_all", list(ADAPTERS), directory)
    for kind in ("lora", "dora", "prefix"):
        names = [name for name, kinds in ADAPTERS.items() if kind in kinds]
        ranks(1, "tests.families.adapter_ranks:numbers_all", names, kind, 4, directory, 1)
    return directory, ranks(1, f"{MODULE}:families_with_adapters", directory, ADAPTERS, 1)[0]


@pytest.mark.long
def test_families_answer_with_their_adapters_in_one_batch_as_alone(families):
    for name, found in families[1].items():
        models = 1 + len(ADAPTERS[name])
        assert found["together"] == found["alone"], name
        answers = {str(found["alone"][number::models]) for number in range(models)}
        assert found["mixed"] == len(answers) == models, name


@pytest.mark.nightly
def test_two_processes_answer_with_adapters_as_one(ranks, families):
    directory, alone = families
    both = ranks(2, f"{MODULE}:families_with_adapters", directory, ADAPTERS, 2)
    for name, kinds in ADAPTERS.items():
        assert both[0][name]["together"] == both[1][name]["together"] == alone[name]["together"], name
        assert both[0][name]["mixed"] == 1 + len(kinds), name


@pytest.mark.nightly
def test_every_family_answers_in_a_batch_as_alone_refilled_at_once_where_its_texts_fit_into_one_row(ranks, tmp_path):
    ranks(1, "tests.families.family_ranks:save_all", list(FAMILIES), str(tmp_path))
    [found] = ranks(1, f"{MODULE}:all_families", str(tmp_path), list(FAMILIES))
    assert {name for name, (*_, steps) in found.items() if steps == 2} == {"chatglm", "glm"}
    for name, (together, alone, _) in found.items():
        assert together == [[*answer, "length"] for answer in alone], name
        assert len({tuple(answer) for answer in alone}) > 1, name


def test_a_lora_beside_a_scored_prompt_and_one_of_experts(facts):
    """Neither in that step nor in the keys and values that are kept of it."""
    alone, beside, after = facts["beside_scored"]
    assert beside == alone and after == alone
    found = facts["lora_of_experts"]
    assert found["together"] == found["alone"] and found["alone"][0] != found["alone"][1]
    assert (found["batch"], found["base"]) == ("WholeBatches", "ContinuousBatch")


def test_prompts_are_scored_in_chunks_as_in_one_pass(facts):
    """Two rows have the same prompt, which is computed twice: what is kept of a text has no logits. Nothing is computed
    of an answer's last token, nor of the ninth token of a prompt without an answer, which is a chunk of its own."""
    found = facts["scored"]
    answers = [[event for event in told if isinstance(event, int)] for told in found["together"]]
    cut = [bool(answer) and told[-1] == "length" for answer, told in zip(answers, found["together"], strict=True)]
    assert found["computed"] == 21 + 21 + 8 + 13 + 1 + 1 + sum(map(len, answers)) - sum(cut)
    assert found["longest"] == 8
    for alone, together in zip(found["alone"], found["together"], strict=True):
        assert len(alone) == len(together)
        for one, other in zip(alone, together, strict=True):
            assert _rounded(one) == _rounded(other)
    lengths = [[len(event) for event in told if isinstance(event, list)][:1] for told in found["together"]]
    assert lengths == [[], [21], [9], [13], [1], [1]]


def _rounded(event):
    if isinstance(event, list):
        return [_rounded(one) for one in event]
    return pytest.approx(event, abs=2e-5) if isinstance(event, float) else event


def test_a_row_whose_logits_are_no_numbers_fails_alone_and_leaves_nothing(facts):
    found = facts["damaged"]
    first, *others = found["together"]
    assert others == found["alone"][1:]
    assert first == [*found["alone"][0][:2], Finish.FAILED]


@pytest.mark.parametrize(("tokens", "computed", "kept"), [(400, 62, 14), (48, 126, 0)], ids=["room", "none"])
def test_what_prompts_begin_with_is_computed_once(facts, tokens, computed, kept):
    """16 tokens once for the base and once for the LoRA; 3 that differ and 2 of the answer for each of 6. Kept: 4
    blocks and one of each row."""
    found = facts["same_beginning"][str(tokens)]
    assert found["same"] and found["reserved"] <= tokens
    assert (found["computed"], found["kept"]) == (computed, kept)


def test_layers_and_rotary_embeddings_for_answers_give_the_same_logits(facts):
    (before, after), same = facts["rotary"]
    assert before > 0 and after == 0 and same == [True, True]
    found = facts["answering_layers"]
    assert 0 < found["difference"] < 2e-6 and found["kinds"] == ["Linear", "LlamaMLP", "LlamaRMSNorm"]
    assert found["dtype"] == "paddle.float64"


def test_rows_wait_for_memory_ask_again_and_leave(facts):
    found = facts["limits"]
    assert found["rows"] == 3 and [len(told) for told in found["told"]] == [11] * 4  # 3 x 20 of 64 tokens
    assert (found["room"], found["prefixed"]) == (64, 60)  # a prefix of 4
    assert found["after"] == 1 and len(found["left"]) == 1 and found["stays"] == 2
    # Each time its prompt would be sent to all ranks of a sharded model.
    found = facts["asked_for_room"]
    assert found[0] == 2 and found[15] == 2 and found[-1] == 3


def test_the_end_of_a_text_is_forgotten_first_and_keys_stay_with_their_texts_when_these_move(facts):
    """56 tokens: 36 of the text, and 5 blocks."""
    found = facts["kept_and_reserved"]
    assert found == {"reused": 7, "room": 4, "short": 32, "reserved": 8192}
    assert facts["moved"] > 10_000


def test_masks_are_made_on_the_device_and_a_group_that_grows_is_there_once(facts):
    """A mask of the eight newest tokens alone would be 8 x 6 heads x 1,024 columns of 4 bytes."""
    found = facts["sent_and_grown"]
    assert found["sent"] <= 8 * (2 * 16 + (1 + 2 + 1) * 72)  # place and length, token and order, rows of two heads
    assert found["held"] == [(number + 1) * found["grown"] for number in range(8)] and found["grown"] > 0


def test_keys_and_values_that_do_not_fit_beside_the_weights_are_refused():
    assert serve._lacking(4.0, None) is None and serve._lacking(4.0, 5 * 2**30) is None
    expected = "--kv_cache_gb: found 4, but 2.0 GiB of a card are free beside the weights. Use --kv_cache_gb 1.8, more"
    assert serve._lacking(4.0, 2**31).startswith(expected)
    assert serve._lacking(4.0, 2**20).endswith("0.0 GiB of a card are free beside the weights. Use more cards.")

"""Preferences as ids: prompts keep their end, responses their beginning, and nothing equal is compared."""

import numpy as np
import pytest

from data_tools.dialogues.chat_template import ChatTemplate
from data_tools.dialogues.datasets import survey
from data_tools.formats.errors import DataError
from data_tools.preferences.datasets import encode_preference_survey, pair_lines
from data_tools.preferences.forms import PreferenceColumns
from data_tools.preferences.samples import DesiredDataset, PackedPairs, PairDataset, encode_preferences
from tests.data_tools.dialogues.test_encoding import GREETING, LLAMA, decode, encoding
from tests.data_tools.preferences.test_forms import BAD, ONE, TWO, preference

LONG = preference("prompt", "AB", "C")


@pytest.mark.parametrize(
    ("judged", "how", "expected"),
    [
        (ONE, encoding(), ("<s>Q", "A</s>", "B</s>")),
        (TWO, encoding(), ("<s>S\n\nPO</s>Q", "A</s>", "B</s>")),
        (TWO, encoding(LLAMA), ("<s>[INST] S\n\nP [/INST] O </s><s>[INST] Q [/INST]", " A </s>", " B </s>")),
        (TWO, encoding(GREETING), ("S\nHuman: P\nBot: O\nHuman: Q\nBot:", " A\n</s>", " B\n</s>")),
        (BAD, encoding(), ("<s>Q", "A</s>")),
        (LONG, encoding(src_length=2, max_length=12), ("<s>prompt", "AB</s>", "C</s>")),
        # the prompt gives what the longer response needs, and no more than src_length leaves
        (LONG, encoding(src_length=2, max_length=9), ("<s>rompt", "AB</s>", "C</s>")),
        (LONG, encoding(src_length=4, max_length=6), ("<s>mpt", "AB", "C</s>")),
        (LONG, encoding(src_length=4, max_length=5), ("<s>mpt", "A", "C")),
        (LONG, encoding(src_length=2, max_length=5), ("<s>t", "AB</s>", "C</s>")),
    ],
)
def test_the_prompt_keeps_its_end_and_responses_their_beginning(judged, how, expected):
    [found] = encode_preferences([judged], how)
    assert tuple(map(decode, (found.prompt, *found.responses))) == expected


@pytest.fixture
def opened(write_rows, tmp_path):
    def open_rows(rows: list[dict], paired=True, row_tokens=None, template=None, **lengths):
        write_rows("train.json", rows)
        found = survey(str(tmp_path), ("train",), PreferenceColumns(paired=paired), 0)
        return encode_preference_survey(found, lambda chat: encoding(template, **lengths), paired, row_tokens)

    return open_rows


def row(prompt: str, chosen: str, rejected: str) -> dict:
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected}


SHOWS_FIRST = (
    "{{ messages[-1].content[0] }}:{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
)
REFUSES_BAD = (
    "{{ raise_exception('no') if messages[0].content == 'bad' }}{% for m in messages %}{{ m.content }}{% endfor %}"
)


def test_what_cannot_be_learnt_is_refused(opened):
    """A prompt as long as a sample would cut a response to nothing, or to all but its last ids."""
    for length in (4, 5):
        with pytest.raises(DataError, match=rf"^--src_length: found {length}, allowed: less than --max_length 4, for"):
            opened([row("prompt", "abc", "d")], src_length=length, max_length=4)
    [refused] = encode_preferences([ONE], encoding(ChatTemplate(SHOWS_FIRST, "mine")))
    assert "mine: the text before the response depends on the response" in str(refused)
    with pytest.raises(DataError, match=r"train\.json:3: .*it says: no"):
        rows = [row("q", "x", "y"), row("q", "x", "z"), row("bad", "x", "y")]
        opened(rows, template=ChatTemplate(REFUSES_BAD))
    with pytest.raises(DataError, match=r"train\.json: all 2 responses to the same prompt; .* Give"):
        opened([row("q", "a", "b")], paired=False)


def test_pairs_of_a_file(opened):
    sets = opened([row("q1", "abc", "d"), row("q2", "e", "fg")])
    assert isinstance(sets.train, PairDataset) and len(sets.train) == 2
    assert [decode(ids) for ids in sets.train[1]] == ["<s>q2", "e</s>", "fg</s>"]
    assert {ids.dtype for ids in sets.train[1]} == {np.dtype("int32")}
    assert sets.train.tokens.tolist() == [6 + 4, 4 + 5] and sets.train.rows.tolist() == [[6, 4], [4, 5]]
    assert sets.train.counted.tolist() == [1, 1] and sets.train.largest_id == ord("q")
    told = "training data: 2 pairs (prompt/chosen/rejected), 19 tokens, 11 of responses, nothing cut"
    assert sets.lines == [told]
    sample = ["a sample; chosen, then rejected, in [[ ]]:", "    <s>q2", "    [[e</s>]]", "    [[fg</s>]]"]
    assert pair_lines(sets.train, decode) == sample
    other = opened([row("q1", "abc", "d"), row("q2", "e", "fh")]).train
    assert other.identity()["preferences"] != sets.train.identity()["preferences"]


def test_pairs_that_are_equal_when_cut_are_dropped_counted_and_told(opened, tmp_path):
    rows = [row("q", "same beginning A", "same beginning B"), row("q", "x", "y"), row("q", "x" * 30, "y")]
    sets = opened(rows, src_length=4, max_length=12)
    assert len(sets.train) == 2 and [decode(ids) for ids in sets.train[1]] == ["<s>q", "x" * 10, "y</s>"]
    dropped = "cut: 1 response; dropped: 1 pair whose responses are the same when cut, the first "
    assert sets.lines[0].endswith(f"{dropped}{tmp_path}/train.json:1")
    with pytest.raises(DataError, match="nothing is left to learn from; nothing cut; dropped: 1 pair"):
        opened(rows[:1], src_length=4, max_length=12)


def test_single_responses_are_no_pairs_and_a_pair_makes_two_of_them(opened):
    labeled = [{"prompt": f"q{i}", "completion": "abc"[: i + 1], "label": i != 1} for i in range(3)]
    with pytest.raises(DataError, match=r"train\.json:1: one response .* --loss_type kto learns from single responses"):
        opened(labeled)
    singles = opened(labeled, paired=False, src_length=4, max_length=6).train
    assert isinstance(singles, DesiredDataset)
    assert [sample.desired for sample in singles] == [True, False, True]
    assert [decode(sample.unrelated_ids) for sample in singles] == ["ab</s>", "abc", "a</s>"]
    assert singles.tokens.tolist() == [4, 5, 5]
    of_pair = opened([row("q", "a", "b"), row("r", "c", "d")], paired=False).train
    found = [(decode(sample.response_ids), sample.desired) for sample in of_pair]
    assert found == [("a</s>", True), ("b</s>", False), ("c</s>", True), ("d</s>", False)]
    turned = [one | {"label": not one["label"]} for one in labeled]
    assert opened(turned, paired=False).train.identity() != opened(labeled, paired=False).train.identity()


@pytest.mark.parametrize(
    ("prompts", "partners"),
    [
        ("abcdabcd", "67812345"),  # TRL's form: the desired response to each prompt, then the undesired ones
        ("aabb", "3412"),
        ("aaab", "4442"),
        ("abbbba", "466163"),
        ("aba", "232"),
    ],
)
def test_an_unrelated_response_is_to_another_prompt(opened, prompts, partners):
    """The one half of the data away, or the next one behind it that is."""
    numbered = enumerate(prompts, 1)
    rows = [{"prompt": prompt, "completion": str(number), "label": number == 1} for number, prompt in numbered]
    assert "".join(decode(sample.unrelated_ids)[0] for sample in opened(rows, paired=False).train) == partners


def test_packing_puts_each_pair_into_both_rows_of_a_sample(opened):
    rows = [row("q", "a" * one, "b" * other) for one, other in ((5, 1), (1, 5), (2, 2), (7, 7), (1, 1))]
    sets = opened(rows, row_tokens=10)
    packed = sets.train
    assert isinstance(packed, PackedPairs)
    assert [[len(pair.chosen_ids) for pair in sample] for sample in packed] == [[8], [6, 2], [2], [3]]
    assert packed.counted.tolist() == [1, 2, 1, 1] and packed.tokens.sum() == opened(rows).train.tokens.sum()
    for sample in packed:
        for response in (1, 2):
            assert sum(len(pair.prompt_ids) + len(pair[response]) - 1 for pair in sample) <= 10
    assert sets.lines[1] == f"packed: 4 times two rows of up to 10 tokens, {packed.tokens.sum() / 80:.0%} full"

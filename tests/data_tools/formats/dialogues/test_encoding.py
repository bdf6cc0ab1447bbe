"""Dialogues as ids: exactly the answers and their ends count, whatever had to be cut."""

import re
from dataclasses import replace

import numpy as np
import pytest

from data_tools.formats.dialogues.chat_template import ChatTemplate, as_jinja, load_template
from data_tools.formats.dialogues.dialogue import Dialogue, Turn
from data_tools.formats.dialogues.encoding import IGNORED, Encoding, encode_dialogue
from data_tools.formats.dialogues.samples import DialogueDataset
from launch.families.encoding import TEMPLATES
from tests.families.chat_templates import COUNTED

SPECIAL = ("<s>", "</s>")
LLAMA = ChatTemplate(as_jinja("", "<s>[INST] {{user}} [/INST]", " {{bot}} </s>"))
GREETING = ChatTemplate(as_jinja("{{system or 'Hello.'}}\n", "Human: {{user}}\nBot:", " {{bot}}\n"))
TWO = Dialogue((Turn("What is 2+2?", "4"), Turn("And 3+3?", "six")))


def encode(text: str) -> list[int]:
    """One id a character, 0 and 1 for the special tokens."""
    return [SPECIAL.index(part) if part in SPECIAL else ord(part) for part in re.findall("<s>|</s>|(?s:.)", text)]


def decode(ids) -> str:
    return "".join(SPECIAL[id] if id < 2 else chr(id) for id in ids)


def encoding(template=None, src_length=100, max_length=1000) -> Encoding:
    begin = () if template else (0,)
    return Encoding(template, encode, begin=begin, eos=1, src_length=src_length, max_length=max_length)


def texts(dialogue: Dialogue, how: Encoding) -> tuple[str, str]:
    """(all ids, those that count) as text."""
    [encoded] = encode_dialogue(dialogue, how)
    assert len(encoded.ids) == len(encoded.labels) <= how.max_length
    assert all(label in (IGNORED, id) for id, label in zip(encoded.ids, encoded.labels, strict=True))
    return decode(encoded.ids), decode(label for label in encoded.labels if label != IGNORED)


def test_bare_pair():
    assert texts(Dialogue((Turn("Q", "A"),)), encoding()) == ("<s>QA</s>", "A</s>")


def test_bare_dialogue_learns_the_end_of_every_answer():
    assert texts(TWO, encoding()) == ("<s>What is 2+2?4</s>And 3+3?six</s>", "4</s>six</s>")


def test_bare_dialogue_begins_with_its_system_text():
    assert texts(Dialogue((Turn("Q", "A"),), "S"), encoding()) == ("<s>S\n\nQA</s>", "A</s>")


def test_template_of_llama():
    assert texts(TWO, encoding(LLAMA)) == (
        "<s>[INST] What is 2+2? [/INST] 4 </s><s>[INST] And 3+3? [/INST] six </s>",
        " 4 </s> six </s>",
    )


@pytest.mark.parametrize("name, counted", COUNTED.items())
def test_every_answer_counts_with_its_end_in_the_template_of_each_family(name, counted):
    assert {path.stem for path in TEMPLATES.glob("*.json")} == COUNTED.keys()
    assert texts(TWO, encoding(load_template(TEMPLATES / f"{name}.json")))[1] == counted


def test_sample_ends_with_eos_where_the_template_has_none():
    assert texts(TWO, encoding(GREETING)) == (
        "Hello.\nHuman: What is 2+2?\nBot: 4\nHuman: And 3+3?\nBot: six\n</s>",
        " 4\n six\n</s>",
    )


def test_long_question_keeps_its_end_and_the_begin():
    [encoded] = encode_dialogue(Dialogue((Turn("abcdef", "A"),)), encoding(src_length=4))
    assert decode(encoded.ids) == "<s>defA</s>"
    assert (encoded.cut_prompts, encoded.cut_answers, encoded.dropped_turns) == (1, 0, 0)


def test_question_of_just_the_length_is_whole():
    [encoded] = encode_dialogue(Dialogue((Turn("def", "A"),)), encoding(src_length=4))
    assert (decode(encoded.ids), encoded.cut_prompts) == ("<s>defA</s>", 0)


def test_long_answer_is_cut_and_has_no_end():
    how = encoding(src_length=2, max_length=5)
    assert texts(Dialogue((Turn("Q", "abc"),)), how) == ("<s>Qabc", "abc")
    assert encode_dialogue(Dialogue((Turn("Q", "abc"),)), how)[0].cut_answers == 1
    assert texts(Dialogue((Turn("Q", "ab"),)), how) == ("<s>Qab</s>", "ab</s>")
    assert encode_dialogue(Dialogue((Turn("Q", "ab"),)), how)[0].cut_answers == 0


@pytest.mark.parametrize(("max_length", "turns"), [(100, 2), (27, 2), (26, 1)])
def test_turn_that_does_not_fit_is_dropped_as_a_whole(max_length, turns):
    [encoded] = encode_dialogue(TWO, encoding(max_length=max_length))
    assert decode(encoded.ids) == ["", "<s>What is 2+2?4</s>", "<s>What is 2+2?4</s>And 3+3?six</s>"][turns]
    assert encoded.dropped_turns == 2 - turns


MARKED = replace(encoding(src_length=12), marks=(ord("M"), ord("S")))


def test_with_marks_every_answer_is_a_sample_whose_question_is_all_before_it():
    first, second = encode_dialogue(Dialogue((Turn("Q", "A"), Turn("R", "B"))), MARKED)
    assert decode(first.ids) == "<s>QMSA</s>" and decode(second.ids) == "<s>QARMSB</s>"
    assert first.labels == [IGNORED] * 4 + [ord("A"), 1] and second.labels == [IGNORED] * 6 + [ord("B"), 1]


def test_marks_stay_where_a_question_is_cut_and_count_as_part_of_it():
    [encoded] = encode_dialogue(Dialogue((Turn("abcdefghijk", "A"),)), MARKED)
    assert (decode(encoded.ids), encoded.cut_prompts) == ("<s>cdefghijkMSA</s>", 1)


def test_a_template_with_marks_is_the_published_prompt_of_chatglm():
    template = load_template(TEMPLATES / "chatglm.json")
    how = replace(encoding(template), marks=(ord("M"), ord("S")))
    *_, last = encode_dialogue(TWO, how)
    prompt = "[Round 0]\n问：What is 2+2?\n答：4\n[Round 1]\n问：And 3+3?\n答："
    assert decode(last.ids) == f"{prompt}MSsix</s>"


def test_dataset_shifts_labels_and_counts():
    how = encoding(src_length=2, max_length=5)
    dialogues = [Dialogue((Turn("Q", "abc"),)), Dialogue((Turn("xyz", "b"), Turn("R", "c")))]
    dataset = DialogueDataset(sample for one in dialogues for sample in encode_dialogue(one, how))
    first, second = dataset[0], dataset[1]
    assert decode(first["input_ids"]) == "<s>Qab"
    assert first["labels"].tolist() == [IGNORED, ord("a"), ord("b"), ord("c")]
    assert decode(second["input_ids"]) == "<s>zb"
    assert second["labels"].tolist() == [IGNORED, ord("b"), 1]
    assert first["input_ids"].dtype == first["labels"].dtype == np.int64
    assert (len(dataset), dataset.tokens.tolist(), dataset.counted.tolist()) == (2, [4, 3], [3, 2])
    assert str(dataset.cuts) == "cut: 1 question, 1 answer, 1 later turn"

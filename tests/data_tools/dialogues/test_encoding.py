"""Dialogues as ids: exactly the answers and their ends count, whatever had to be cut."""

import re
from dataclasses import replace

import numpy as np
import pytest

from data_tools.dialogues.chat_template import ChatTemplate, as_jinja, load_template
from data_tools.dialogues.encoding import IGNORED, Encoding, encode_dialogue
from data_tools.dialogues.messages import Dialogue, plain_dialogue
from data_tools.dialogues.samples import DialogueDataset
from launch.families.encoding import TEMPLATES
from tests.families.chat_templates import COUNTED

SPECIAL = ("<s>", "</s>")
LLAMA = ChatTemplate(as_jinja("", "<s>[INST] {{user}} [/INST]", " {{bot}} </s>"))
GREETING = ChatTemplate(as_jinja("{{system or 'Hello.'}}\n", "Human: {{user}}\nBot:", " {{bot}}\n"))
TURNS = ("What is 2+2?", "4"), ("And 3+3?", "six")
TWO = plain_dialogue(TURNS)


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


@pytest.mark.parametrize(
    ("dialogue", "template", "expected"),
    [
        (plain_dialogue((("Q", "A"),)), None, ("<s>QA</s>", "A</s>")),
        (plain_dialogue((("Q", "A"),), "S"), None, ("<s>S\n\nQA</s>", "A</s>")),
        (TWO, None, ("<s>What is 2+2?4</s>And 3+3?six</s>", "4</s>six</s>")),
        (
            TWO,
            LLAMA,
            ("<s>[INST] What is 2+2? [/INST] 4 </s><s>[INST] And 3+3? [/INST] six </s>", " 4 </s> six </s>"),
        ),
        (  # a template without an end: the sample has one
            TWO,
            GREETING,
            ("Hello.\nHuman: What is 2+2?\nBot: 4\nHuman: And 3+3?\nBot: six\n</s>", " 4\n six\n</s>"),
        ),
    ],
    ids=["pair", "system", "dialogue", "llama", "greeting"],
)
def test_the_answers_and_their_ends_count(dialogue, template, expected):
    assert texts(dialogue, encoding(template)) == expected


def test_every_answer_counts_with_its_end_in_the_template_of_each_family():
    counted = {path.stem: texts(TWO, encoding(load_template(path)))[1] for path in TEMPLATES.glob("*.json")}
    assert counted == COUNTED


MARKED = replace(encoding(src_length=12), marks=(ord("M"), ord("S")))


@pytest.mark.parametrize(
    ("turns", "how", "ids", "cuts"),
    [
        ((("abcdef", "A"),), encoding(src_length=4), "<s>defA</s>", (1, 0, 0)),
        ((("def", "A"),), encoding(src_length=4), "<s>defA</s>", (0, 0, 0)),
        ((("Q", "abc"),), encoding(src_length=2, max_length=5), "<s>Qabc", (0, 1, 0)),  # a cut answer has no end
        ((("Q", "ab"),), encoding(src_length=2, max_length=5), "<s>Qab</s>", (0, 0, 0)),
        (TURNS, encoding(max_length=27), "<s>What is 2+2?4</s>And 3+3?six</s>", (0, 0, 0)),
        (TURNS, encoding(max_length=26), "<s>What is 2+2?4</s>", (0, 0, 1)),  # a turn goes as a whole
        ((("abcdefghijk", "A"),), MARKED, "<s>cdefghijkMSA</s>", (1, 0, 0)),  # marks are part of the question
    ],
)
def test_what_is_too_long(turns, how, ids, cuts):
    [encoded] = encode_dialogue(plain_dialogue(turns), how)
    assert decode(encoded.ids) == ids
    assert (encoded.cut_prompts, encoded.cut_answers, encoded.dropped_turns) == cuts


def test_with_marks_every_answer_is_a_sample_whose_question_is_all_before_it():
    first, second = encode_dialogue(plain_dialogue((("Q", "A"), ("R", "B"))), MARKED)
    assert decode(first.ids) == "<s>QMSA</s>" and decode(second.ids) == "<s>QARMSB</s>"
    assert first.labels == [IGNORED] * 4 + [ord("A"), 1] and second.labels == [IGNORED] * 6 + [ord("B"), 1]
    how = replace(encoding(load_template(TEMPLATES / "chatglm.json")), marks=(ord("M"), ord("S")))
    *_, last = encode_dialogue(TWO, how)  # as published for ChatGLM
    prompt = "[Round 0]\n问：What is 2+2?\n答：4\n[Round 1]\n问：And 3+3?\n答："
    assert decode(last.ids) == f"{prompt}MSsix</s>"


def test_dataset_shifts_labels_and_counts():
    how = encoding(src_length=2, max_length=5)
    dialogues = [plain_dialogue((("Q", "abc"),)), plain_dialogue((("xyz", "b"), ("R", "c")))]
    dataset = DialogueDataset(sample for one in dialogues for sample in encode_dialogue(one, how))
    first, second = dataset[0], dataset[1]
    assert decode(first["input_ids"]) == "<s>Qab"
    assert first["labels"].tolist() == [IGNORED, ord("a"), ord("b"), ord("c")]
    assert decode(second["input_ids"]) == "<s>zb"
    assert second["labels"].tolist() == [IGNORED, ord("b"), 1]
    assert first["input_ids"].dtype == first["labels"].dtype == np.int64
    assert (len(dataset), dataset.tokens.tolist(), dataset.counted.tolist()) == (2, [4, 3], [3, 2])
    assert str(dataset.cuts) == "cut: 1 question, 1 answer, 1 later turn"

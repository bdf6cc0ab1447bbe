"""Dialogues as text, by templates in PaddleNLP's form."""

import json

import pytest

from data_tools.dialogues.chat_template import load_template
from data_tools.dialogues.messages import plain_dialogue
from data_tools.formats.errors import DataError
from tests.data_tools.conftest import ROOT

SHIPPED = {file.stem: file for file in (ROOT / "launch" / "families" / "chat_templates").glob("*.json")}
TURNS = ("Q", "A"), ("R", "B")
TWO = plain_dialogue(TURNS)
ASKED, EMPTY = "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n", "<think>\n\n</think>\n\n"
THOUGHT = "<think>\nx\n</think>\n\nA"


@pytest.mark.parametrize(
    ("name", "dialogue", "rendered"),
    [
        ("llama", TWO, [("<s>[INST] Q [/INST]", " A </s>"), ("<s>[INST] R [/INST]", " B </s>")]),
        (
            "llama",
            plain_dialogue(TURNS, system="Be brief."),
            [
                ("<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nQ [/INST]", " A </s>"),
                ("<s>[INST] R [/INST]", " B </s>"),
            ],
        ),
        # braces of users are text
        (
            "llama",
            plain_dialogue((("{{ 7 * 7 }}", "{% if %}"),)),
            [("<s>[INST] {{ 7 * 7 }} [/INST]", " {% if %} </s>")],
        ),
        # as the template of its tokenizers with enable_thinking off and on
        ("qwen3", plain_dialogue((("Q", "A"),)), [(f"{ASKED}{EMPTY}", "A<|im_end|>\n")]),
        ("qwen3_thinking", plain_dialogue((("Q", "A"),)), [(ASKED, f"{EMPTY}A<|im_end|>\n")]),
        ("qwen3_thinking", plain_dialogue((("Q", THOUGHT),)), [(ASKED, f"{THOUGHT}<|im_end|>\n")]),
    ],
)
def test_a_dialogue_in_a_shipped_template(name, dialogue, rendered):
    assert load_template(SHIPPED[name]).render(dialogue).samples == [rendered]


@pytest.mark.parametrize("name", SHIPPED)
def test_no_shipped_template_loses_a_text_and_the_last_question_is_asked_as_in_training(name):
    """What predict will render by `query` is what stood before an answer in training."""
    dialogue = plain_dialogue((("first?", "one."), ("second?", "two.")), system="scene")
    [rendered] = load_template(SHIPPED[name]).render(dialogue).samples
    text = "".join(before + after for before, after in rendered)
    places = [text.index(part) for part in ("scene", "first?", "one.", "second?", "two.")]
    assert places == sorted(places)
    assert [answer in after for answer, (_, after) in zip(("one.", "two."), rendered, strict=True)] == [True, True]
    content = json.loads(SHIPPED[name].read_text(encoding="utf-8"))
    assert content["query"].replace("query", "user") == content["conversation"][0]


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"query": "Q"}', '{"conversation": ["{{user}}"]}', '{"conversation": ["{{user", "B"]}']
)
def test_file_that_is_no_template(tmp_path, content):
    (tmp_path / "chat_template.json").write_text(content)
    with pytest.raises(DataError, match="chat_template.json: no chat template"):
        load_template(tmp_path / "chat_template.json")

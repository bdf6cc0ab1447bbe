"""Dialogues as text, by templates in PaddleNLP's form."""

import json

import pytest

from data_tools.formats.dialogues.chat_template import ChatTemplate, load_template
from data_tools.formats.dialogues.dialogue import Dialogue, Turn
from data_tools.formats.errors import DataError
from tests.data_tools.conftest import ROOT

SHIPPED = sorted((ROOT / "launch" / "families" / "chat_templates").glob("*.json"))
TWO = Dialogue((Turn("Q", "A"), Turn("R", "B")))
EMPTY = "<think>\n\n</think>\n\n"
SCENE = Dialogue(TWO.turns, system="Be brief.")


def llama() -> ChatTemplate:
    return load_template(next(file for file in SHIPPED if file.stem == "llama"))


def test_turns_of_llama():
    assert llama().render(TWO) == [("<s>[INST] Q [/INST]", " A </s>"), ("<s>[INST] R [/INST]", " B </s>")]


def test_system_text_of_llama_stands_in_the_first_question():
    assert llama().render(SCENE) == [
        ("<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nQ [/INST]", " A </s>"),
        ("<s>[INST] R [/INST]", " B </s>"),
    ]


@pytest.mark.parametrize(
    ("name", "answer", "block", "learnt"),
    [
        ("qwen3", "A", EMPTY, "A<|im_end|>\n"),
        ("qwen3_thinking", "A", "", f"{EMPTY}A<|im_end|>\n"),
        ("qwen3_thinking", "<think>\nx\n</think>\n\nA", "", "<think>\nx\n</think>\n\nA<|im_end|>\n"),
    ],
)
def test_qwen3_is_asked_with_an_empty_block_or_learns_its_own(name, answer, block, learnt):
    """As the template of its tokenizers with enable_thinking off and on."""
    [template] = [load_template(file) for file in SHIPPED if file.stem == name]
    asked = f"<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n{block}"
    assert template.render(Dialogue((Turn("Q", answer),))) == [(asked, learnt)]


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_no_shipped_template_loses_a_text(file):
    dialogue = Dialogue((Turn("first?", "one."), Turn("second?", "two.")), system="scene")
    rendered = load_template(file).render(dialogue)
    text = "".join(before + after for before, after in rendered)
    places = [text.index(part) for part in ("scene", "first?", "one.", "second?", "two.")]
    assert places == sorted(places)
    assert [answer in after for answer, (_, after) in zip(("one.", "two."), rendered, strict=True)] == [True, True]


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_last_question_is_asked_as_in_training(file):
    """What predict will render by `query` is what stood before an answer in training."""
    content = json.loads(file.read_text(encoding="utf-8"))
    question, _ = content["conversation"]
    assert content["query"].replace("query", "user") == question


def test_braces_of_users_are_text():
    [(before, after)] = llama().render(Dialogue((Turn("{{ 7 * 7 }}", "{% if %}"),)))
    assert (before, after) == ("<s>[INST] {{ 7 * 7 }} [/INST]", " {% if %} </s>")


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"query": "Q"}', '{"conversation": ["{{user}}"]}', '{"conversation": ["{{user", "B"]}']
)
def test_file_that_is_no_template(tmp_path, content):
    (tmp_path / "chat_template.json").write_text(content)
    with pytest.raises(DataError, match="chat_template.json: no chat template"):
        load_template(tmp_path / "chat_template.json")

"""What stands before, between and behind the texts of a dialogue, by family."""

import json
from types import SimpleNamespace

import pytest

from data_tools.dialogues.chat_template import ChatTemplate, trained_with
from launch.errors import UserError
from launch.families.encoding import encoding_of, end_ids
from launch.families.registry import FAMILIES

BEGIN, EOS = 1, 2
MARKS = {"[gMASK]": 3, "<sop>": 4, "<|endoftext|>": 5, "<|startofpiece|>": 6, "<|endofpiece|>": 7}
FLAGS = SimpleNamespace(chat_template=None, src_length=50, max_length=100)


class Letters:
    """An id a character; BEGIN before a text, EOS behind it."""

    eos_token_id = EOS

    def __init__(self, marks: dict[str, int]):
        self.marks = marks

    def encode(self, text: str, add_special_tokens: bool = True) -> dict:
        ids = [ord(one) for one in text]
        return {"input_ids": [BEGIN, *ids, EOS] if add_special_tokens else ids}

    def convert_tokens_to_ids(self, token: str) -> int:
        return self.marks.get(token, 0)

    def convert_ids_to_tokens(self, number: int) -> str:
        return next((token for token, one in self.marks.items() if one == number), "<unk>")


def config(family: str) -> dict:
    values = {"model_type": FAMILIES[family].model_type, "alibi": family == "baichuan"}
    return values | ({"gmask_token_id": 3} if family == "chatglm" else {})


@pytest.mark.parametrize("family", FAMILIES)
def test_a_chat_begins_as_its_template_says_or_as_the_tokenizer_does(family):
    begins = family in ("chatglm_v2", "glm", "opt")
    assert encoding_of(FLAGS, Letters(MARKS), config(family), chat=True).begin == ((BEGIN,) if begins else ())
    assert encoding_of(FLAGS, Letters(MARKS), config(family), chat=False).begin == (BEGIN,)


def test_a_model_is_asked_by_its_directorys_template_unless_it_was_trained_on_bare_texts(tmp_path):
    tokenizer = Letters(MARKS)
    tokenizer.directory = tmp_path

    def origins(**values) -> list[str | None]:
        """Of texts and chats, to train and to ask."""
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(values))
        ways = [{"chat": chat, "use": use} for use in (False, True) for chat in (False, True)]
        found = [encoding_of(FLAGS, tokenizer, config("llama"), **way).template for way in ways]
        return [template and template.origin.removeprefix(f"{tmp_path}/") for template in found]

    own, family = "tokenizer_config.json", "llama (of the model's family)"
    assert origins() == [None, family, None, family]
    assert origins(chat_template="T") == [None, own, own, own]
    assert origins(**trained_with(ChatTemplate("T"), {})) == [None, own, own, own]
    assert origins(**trained_with(None, {"chat_template": "T"})) == [None, own, None, own]
    (tmp_path / "chat_template.jinja").write_text("J")
    assert origins(**trained_with(None, {})) == [None, "chat_template.jinja", None, "chat_template.jinja"]
    assert origins() == [None, *["chat_template.jinja"] * 3]


@pytest.mark.parametrize("family", FAMILIES)
def test_marks_and_ends_are_those_of_the_family(family):
    expected = {"chatglm": ((3, 4), EOS), "glm": ((3, 5, 6), 7)}.get(family, ((), EOS))
    found = encoding_of(FLAGS, Letters(MARKS), config(family), chat=False)
    assert (found.marks, found.eos) == expected
    end = expected[1]
    for stated, ends in (
        (None, (end,)),
        ([9, end, 8], (end, 9, 8)),
        ([9, 8], (end,)),
        (9, (end,)),
    ):  # 9, 8: not its own
        assert end_ids(Letters(MARKS), FAMILIES[family], stated) == ends


def test_a_tokenizer_of_another_model_is_refused():
    with pytest.raises(UserError, match=r"the tokenizer has no \[gMASK\], which stands between prompt and answer of"):
        encoding_of(FLAGS, Letters({}), config("chatglm"), chat=False)
    with pytest.raises(UserError, match=r"gmask_token_id is 9 in the model's config.json, but \[gMASK\] is 3"):
        encoding_of(FLAGS, Letters(MARKS), config("chatglm") | {"gmask_token_id": 9}, chat=False)

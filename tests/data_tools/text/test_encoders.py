"""Ids equal those of the reference library for every input, through files and worker processes."""

import json
import random

import numpy as np
import pytest
import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from data_tools.formats.errors import DataError
from data_tools.formats.tokens.indexed import IndexedDataset
from data_tools.text import encoders
from data_tools.text.encoders import JsonEncoder, LocatingTokenizer, SentencePieceEncoder, load_encoder, require_quick
from data_tools.tokenize import tokenize_files
from data_tools.tokenizer import MODEL_NAME
from data_tools.verify import compare_with_source

LONG, NIGHTLY = pytest.mark.long, pytest.mark.nightly
ALPHABETS = (
    "abc ABC \n\t  .,;:()[]{}_-=+0123456789",
    "中文字符，和标点。数据训练模型",
    "éñüßøáç ŁŚŻ ёйщ αβγ אבג ابج हिन्दी 한국어 ひらカナ",
    "😀👨‍👩‍👧‍👦🇨🇳✅\u200d\ufe0f",
    "".join(map(chr, range(32))) + "\x7f\x80\x9f\u2028\u2029\u200b\ufeff\u0301\u2581\ufffd\U0010ffff\ue000",
)
SPECIAL = ("<s>", "</s>", "<unk>", "<|endoftext|>", "<0x0A>", "▁▁", "  ", "\r\n", "\n\n\n")


def fuzzed_texts(count: int, seed: int = 0) -> list[str]:
    """Any characters in any order, and the awkward ones alone."""
    source = random.Random(seed)
    texts = [*SPECIAL, "", " ", "\n", "\x00", "a" * 3000, "中" * 3000, *"".join(ALPHABETS)]
    for _ in range(count):
        alphabet = source.choice((*ALPHABETS, "".join(ALPHABETS)))
        pieces = ["".join(source.choices(alphabet, k=source.randrange(60))) for _ in range(source.randrange(1, 6))]
        texts.append(source.choice(("", " ", source.choice(SPECIAL))).join(pieces))
    for _ in range(count // 4):
        codes = (source.randrange(0x110000) for _ in range(source.randrange(40)))
        texts.append("".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000))
    return texts


@pytest.fixture(scope="session")
def json_dir(tmp_path_factory, sources):
    """A byte-level BPE as GPT-2 and Qwen2 have it, with a special token."""
    directory = tmp_path_factory.mktemp("json")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(sources[:30], trainer)
    tokenizer.enable_truncation(8)  # a saved one may have this: it must not cut documents
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text('{"eos_token": {"content": "<|endoftext|>"}}')
    return directory


def reference_ids(directory, kind: str, texts: list[str]) -> list[list[int]]:
    """Text by text, with the library itself."""
    if kind == "sentencepiece":
        model = sentencepiece.SentencePieceProcessor(model_file=str(directory / MODEL_NAME))
        return [model.encode(text) for text in texts]
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.no_truncation()
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


@pytest.fixture(params=["sentencepiece", "json"])
def tokenizer(request, tokenizer_dir, json_dir):
    """(kind, directory)"""
    return request.param, tokenizer_dir if request.param == "sentencepiece" else json_dir


def check_ids(tokenizer, texts, tmp_path, workers: int) -> None:
    kind, directory = tokenizer
    file = tmp_path / "texts.jsonl"
    file.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    tokenize_files([file], directory, tmp_path / "a", workers=workers)
    corpus = IndexedDataset(tmp_path / "a")
    expected = reference_ids(directory, kind, [text for text in texts if text])
    eos = 2 if kind == "sentencepiece" else 0
    assert [ids.tolist() for ids in corpus] == [[*ids, eos] for ids in expected]


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=LONG), pytest.param(60_000, marks=NIGHTLY)])
def test_ids_of_fuzzed_texts(tokenizer, tmp_path, count):
    check_ids(tokenizer, fuzzed_texts(count), tmp_path, workers=2)
    if count < 1000:  # decoding gives the texts back
        compare_with_source(IndexedDataset(tmp_path / "a"), tokenizer[1], [str(tmp_path / "texts.jsonl")])


@NIGHTLY
def train_model(path, **flags) -> None:
    with open(path, "wb") as made:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([f"the {word} of words" for word in ("house", "cat", "tree", "street")] * 9),
            model_writer=made, vocab_size=300, hard_vocab_limit=False, minloglevel=9, **flags,
        )  # fmt: skip


PLAIN = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True}


@pytest.mark.parametrize(
    ("flags", "fast"),
    [
        (PLAIN | {"model_type": "bpe"}, True),  # as LLaMA's
        (PLAIN | {"model_type": "bpe", "add_dummy_prefix": False}, True),
        ({"model_type": "unigram", "byte_fallback": False}, False),  # normalized by NFKC, spaces taken away
        ({"model_type": "bpe", "byte_fallback": True}, False),
    ],
)
def test_tokens_stand_where_sentencepiece_says(tmp_path, monkeypatch, flags, fast):
    train_model(tmp_path / "tokenizer.model", **flags)
    encoder = SentencePieceEncoder(tmp_path / "tokenizer.model")
    texts = [text for text in fuzzed_texts(100) if len(text) < 1000]
    by_pieces = [encoder.locate_chat(text, [*range(len(text) + 1)]) for text in texts]
    asked = []
    monkeypatch.setattr(encoders, "_lengths", lambda *found: asked.append(found))
    assert by_pieces == [encoder.locate_chat(text, [*range(len(text) + 1)]) for text in texts]
    assert [ids for ids, *_ in by_pieces] == [encoder.encode_chat(text) for text in texts]
    monkeypatch.undo()
    known = sum(encoders._lengths(*found) is not None for found in asked) / len(asked)
    assert (known > 0.9) is fast, known  # hardly a text needs a second look where the model normalizes nothing


@pytest.mark.parametrize("trims", [False, True])
def test_tokens_of_bytes_stand_where_the_library_says(json_dir, trims):
    tokenizer = Tokenizer.from_file(str(json_dir / "tokenizer.json"))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=trims)  # GPT-2's leave spaces out of places
    tokenizer.no_truncation()
    encoder, known = LocatingTokenizer(tokenizer), 0
    assert encoder._spells is not trims
    texts = ["e\u0301", *(text for text in fuzzed_texts(100) if len(text) < 1000)]
    for text in texts:
        borders = [*range(len(text) + 1)]
        found = encoder._by_offsets(text, borders)
        assert encoder.locate(text, borders) == found and found[0] == encoder.encode(text)
        known += encoder._by_bytes(text, borders) is not None
    assert known == len(texts) - 1, "NFC changes the first"


def test_a_line_of_ten_megabytes(tokenizer, sources, tmp_path):
    text = ("\n".join(sources) * 20)[: 10 << 20]
    check_ids(tokenizer, ["before", text, "behind"], tmp_path, workers=2)


def test_what_a_directory_says_of_itself(tokenizer_dir, json_dir, tmp_path):
    encoder = load_encoder(json_dir)
    assert isinstance(encoder, JsonEncoder)
    assert (encoder.vocab_size, encoder.eos_id, encoder.decode([[0]])) == (900, 0, ["<|endoftext|>"])
    assert [ids.dtype for ids in encoder.encode(["a", ""])] == [np.int32] * 2
    (tmp_path / "tokenizer.json").write_bytes((json_dir / "tokenizer.json").read_bytes())
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(DataError, match="names no end-of-sequence token: add eos_token to tokenizer_config.json"):
        tokenize_files([tmp_path / "a.txt"], tmp_path, tmp_path / "a")
    assert tokenize_files([tmp_path / "a.txt"], tmp_path, tmp_path / "a", eos=False).documents == 1
    for file in (*tokenizer_dir.iterdir(), *json_dir.iterdir()):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert isinstance(load_encoder(tmp_path), SentencePieceEncoder), "of both paddlenlp's is taken"
    (tmp_path / "sentencepiece.bpe.model").rename(tmp_path / "tokenizer.model")
    assert isinstance(load_encoder(tmp_path), JsonEncoder), "of a published directory what import takes"
    (gaps := tmp_path / "gaps").mkdir()
    Tokenizer(models.WordLevel({"a": 0, "b": 7}, unk_token="a")).save(str(gaps / "tokenizer.json"))
    encoder = load_encoder(gaps)  # ids with gaps are all within the vocabulary
    assert encoder.encode(["b"])[0].tolist() == [7] and encoder.vocab_size == 8


@pytest.mark.parametrize("where", ["pre_tokenizer", "normalizer"])
@pytest.mark.parametrize("pattern", [r".*\d{40}", r"(a+)+[bc]", r"\s*\s*\d{9}"])
def test_a_pattern_whose_time_grows_faster_than_the_text_is_refused(tmp_path, where, pattern):
    hostile = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    if where == "normalizer":
        hostile.normalizer = normalizers.Replace(Regex(pattern), "x")
    else:
        hostile.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    hostile.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(DataError, match=r"tokenizer\.json: a pattern by which it .* characters of '"):
        load_encoder(tmp_path)


# As published: GPT-2, LLaMA-3, DeepSeek-V3, GPT-4o; digits by threes from behind (of LLaMA's kin).
QUICK = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?<=\d)(?=(?:\d{3})+(?!\d))",
)


@pytest.mark.parametrize("number", range(len(QUICK)))
def test_published_patterns_are_taken(number):
    published = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    published.pre_tokenizer = pre_tokenizers.Split(Regex(QUICK[number]), "isolated")
    require_quick(published, "published")


def test_no_tokenizer(tmp_path):
    """The command that trains one can be pasted."""
    with pytest.raises(DataError, match=rf"--output '{tmp_path}/my tokenizer' --vocab_size 32000`\.$"):
        load_encoder(tmp_path / "my tokenizer")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match="tokenizer.json is no tokenizer: "):
        load_encoder(tmp_path)

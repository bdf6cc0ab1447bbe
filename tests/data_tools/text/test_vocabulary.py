"""Extending a sentencepiece model: old ids stay, new text takes fewer tokens."""

import random
import re

import pytest
import sentencepiece

from data_tools.formats.errors import DataError
from data_tools.text.encoders import load_encoder
from data_tools.text.vocabulary import model_type, new_pieces, pieces, tokens_per_character
from data_tools.tokenizer import extend_tokenizer, save_tokenizer, train_tokenizer
from tests.data_tools.test_tokenizer import AWKWARD

WORDS = [*"的是在了和", *re.findall("..", "我们你们他们中国北京今天明天天气很好学习训练模型语言数据处理")]


@pytest.fixture(scope="module")
def chinese():
    source = random.Random(0)
    return ["".join(source.choices(WORDS, k=80)) + "。\n" + "".join(source.choices(WORDS, k=80)) for _ in range(200)]


@pytest.fixture(scope="module")
def bases(sources):
    """A base model of each type."""
    return {model_type: train_tokenizer(sources[:6], 500, model_type) for model_type in ("bpe", "unigram")}


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_ids_stay_and_new_text_takes_fewer_tokens(kind, bases, sources, chinese, tmp_path):
    save_tokenizer(tmp_path, bases[kind])
    extended, before, after = extend_tokenizer(tmp_path, chinese, 560)
    base, model = (sentencepiece.SentencePieceProcessor(model_proto=proto) for proto in (bases[kind], extended))
    assert (base.get_piece_size(), model.get_piece_size()) == (500, 560)
    assert [model.id_to_piece(i) for i in range(500)] == [base.id_to_piece(i) for i in range(500)]
    assert [model.get_score(i) for i in range(500)] == [base.get_score(i) for i in range(500)]
    assert model_type(bases[kind]) == model_type(extended)
    assert before > 2.5 and after < 0.8
    held_out, old = chinese[1::20], sources[:20]
    assert before == tokens_per_character(bases[kind], held_out) and after == tokens_per_character(extended, held_out)
    assert tokens_per_character(extended, old) == tokens_per_character(bases[kind], old)
    for text in [*chinese[:20], *sources[:5], *AWKWARD]:
        assert model.decode(model.encode(text)) == text


def test_characters_come_before_words(bases, chinese):
    added = [piece for piece, _ in new_pieces(bases["bpe"], train_tokenizer(chinese, 360, "bpe"))]
    lengths = [min(2, len(piece)) for piece in added]
    assert lengths == sorted(lengths) and set(lengths) == {1, 2}
    assert not set(added) & set(pieces(bases["bpe"]))


def test_the_extended_directory_is_a_tokenizer(command, tokenizer_dir, chinese, tmp_path):
    (tmp_path / "texts").mkdir()
    for number, text in enumerate(chinese):
        (tmp_path / "texts" / f"{number:03}.txt").write_text(text)
    arguments = ("--input", tmp_path / "texts", "--extend", tokenizer_dir, "--vocab_size")
    done = command("tokenizer", *arguments, 1050, "--output", tmp_path / "new")
    assert done.returncode == 0, done.stderr
    assert "tokens a character of held-out documents: " in done.stdout and "fewer)" in done.stdout
    assert load_encoder(tmp_path / "new").vocab_size == 1050
    config = "tokenizer_config.json"
    assert (tmp_path / "new" / config).read_bytes() == (tokenizer_dir / config).read_bytes()
    failed = command("tokenizer", *arguments, 900, "--output", tmp_path / "smaller")
    assert "has 1000 ids already" in failed.stderr and not (tmp_path / "smaller").exists()


def test_what_cannot_be_extended(tokenizer_dir, sources, tmp_path):
    with pytest.raises(DataError, match="one document is too little to extend a tokenizer"):
        extend_tokenizer(tokenizer_dir, ["\n".join(sources)], 1100)
    for file in tokenizer_dir.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "added_tokens.json").write_text('{"<pad>": 1000}')
    with pytest.raises(DataError, match="no added_tokens.json, whose tokens have the ids behind it"):
        extend_tokenizer(tmp_path, ["x"], 1100)


def test_lines_are_drawn_the_same_every_time(sources):
    some = sources[:20]
    model = train_tokenizer(some, 500, max_lines=300)
    assert model == train_tokenizer(some, 500, max_lines=300) != train_tokenizer(some, 500)

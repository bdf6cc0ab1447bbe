"""Extending a sentencepiece model: old ids stay, new text takes fewer tokens."""

import random

import pytest
import sentencepiece

from data_tools.formats.errors import DataError
from data_tools.text.encoders import load_encoder
from data_tools.text.vocabulary import model_type, new_pieces, pieces, tokens_per_character
from data_tools.tokenizer import extend_tokenizer, save_tokenizer, train_tokenizer
from tests.data_tools.test_tokenizer import AWKWARD

WORDS = [
    "我们",
    "你们",
    "他们",
    "中国",
    "北京",
    "今天",
    "明天",
    "天气",
    "很好",
    "学习",
    "训练",
    "模型",
    "语言",
    "数据",
    "处理",
    "的",
    "是",
    "在",
    "了",
    "和",
]


@pytest.fixture(scope="module")
def chinese():
    source = random.Random(0)
    return ["".join(source.choices(WORDS, k=80)) + "。\n" + "".join(source.choices(WORDS, k=80)) for _ in range(200)]


@pytest.fixture(params=["bpe", "unigram"], scope="module")
def extended(request, sources, chinese, tmp_path_factory):
    """(base model, extended model, tokens a character before, after)"""
    base_dir = tmp_path_factory.mktemp(request.param)
    base = train_tokenizer(sources[:10], 500, request.param)
    save_tokenizer(base_dir, base)
    return base, *extend_tokenizer(base_dir, chinese, 560)


def test_ids_that_there_were_stay(extended):
    base, model = (sentencepiece.SentencePieceProcessor(model_proto=proto) for proto in extended[:2])
    assert (base.get_piece_size(), model.get_piece_size()) == (500, 560)
    assert [model.id_to_piece(i) for i in range(500)] == [base.id_to_piece(i) for i in range(500)]
    assert [model.get_score(i) for i in range(500)] == [base.get_score(i) for i in range(500)]
    assert model_type(extended[0]) == model_type(extended[1])


def test_new_text_takes_fewer_tokens_and_old_text_as_many(extended, chinese, sources):
    base, model, before, after = extended
    assert before > 2.5 and after < 0.8
    held_out = chinese[1::20]
    assert before == tokens_per_character(base, held_out) and after == tokens_per_character(model, held_out)
    assert tokens_per_character(model, sources[:20]) == tokens_per_character(base, sources[:20])


def test_any_text_comes_back(extended, chinese, sources):
    model = sentencepiece.SentencePieceProcessor(model_proto=extended[1])
    for text in [*chinese[:20], *sources[:5], *AWKWARD]:
        assert model.decode(model.encode(text)) == text


def test_characters_come_before_words(extended, chinese):
    trained = train_tokenizer(chinese, 360, "bpe")
    added = [piece for piece, _ in new_pieces(extended[0], trained)]
    lengths = [min(2, len(piece)) for piece in added]
    assert lengths == sorted(lengths) and set(lengths) == {1, 2}
    assert not set(added) & set(pieces(extended[0]))


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


def test_added_tokens_are_in_the_way(tokenizer_dir, tmp_path):
    for file in tokenizer_dir.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "added_tokens.json").write_text('{"<pad>": 1000}')
    with pytest.raises(DataError, match="no added_tokens.json, whose tokens have the ids behind it"):
        extend_tokenizer(tmp_path, ["x"], 1100)


def test_one_document_is_too_little(tokenizer_dir, sources):
    with pytest.raises(DataError, match="one document is too little to extend a tokenizer"):
        extend_tokenizer(tokenizer_dir, ["\n".join(sources)], 1100)


def test_lines_are_drawn_the_same_every_time(sources):
    model = train_tokenizer(sources, 600, max_lines=500)
    assert model == train_tokenizer(sources, 600, max_lines=500) != train_tokenizer(sources, 600)


def test_a_broken_line_is_named(command, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": \n')
    failed = command("tokenizer", "--input", tmp_path / "a.jsonl", "--output", tmp_path / "t", "--vocab_size", 300)
    assert failed.stderr.startswith(f"error: {tmp_path}/a.jsonl:2: not JSON")
